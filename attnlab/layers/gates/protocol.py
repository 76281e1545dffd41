"""What a gate of an image network is: a layer that maps x [B,H,W,C] to the same shape and dtype.

    y = x * g(x)       `Factor`: squeeze-and-excitation, ECA, CBAM, coordinate, residual attention
    y = x + f(x)       the non-local blocks, `attnlab.attention.non_local`
    y = x              `NoGate`

A `Factor` hands out g, which broadcasts to x, while the variable collection "gates" is mutable, as
attention hands out its weights in "maps"; `handed_out` reads the collection. Sums over places and
channels and the sigmoid are computed in float32 (see `layers.dense`). Maps have no padding:
every place of an image is real. `valid` [B] tells the images of a batch that are real from rows
that only fill it; norms over a batch ask.

Axis letters: B batch, H and W height and width of a map, C channels, r reduction; N = H W on cards.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import flax.linen as nn
import flax.traverse_util
import jax

from attnlab.config.registry import Parts, made
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import widened

COLLECTION = "gates"
"""The variable collection for g; it is recorded exactly while that is mutable."""


class Gate(nn.Module):
    """Base of everything that may stand at the place of a gate. Its fields are its whole
    configuration.

    Attributes of the class:
      maps: what it hands out: "spatial" g in the collection "gates"; "exact" the weights of its
        attention in "maps"; "none" nothing.
    """

    maps: ClassVar[Literal["spatial", "exact", "none"]] = "spatial"

    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """x [B,H,W,C] to the same shape and dtype.

        Args:
          x: feature maps, none of the sizes H, W, C zero.
          valid: [B] bool, which images are real; None for all.

        Raises:
          UserError: the fields do not fit the size of x.
        """
        raise NotImplementedError

    @property
    def over_batch(self) -> bool:
        """Whether a pass of training leaves statistics of its batch, see `layers.norms.BatchNorm`."""
        return any_over_batch(self)


class NoGate(Gate):
    """x itself: a network without gates; no parameters.

    Card: control; He et al., Deep Residual Learning, CVPR 2016: the network alone.
    """

    maps = "none"

    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """See `Gate.__call__`."""
        return x


class Factor(Gate):
    """Base of the gates y = x * g(x); a subclass implements `factor`."""

    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """g, broadcastable to x [B,H,W,C], in the inner precision."""
        raise NotImplementedError

    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Computes x * g(x) for x [B,H,W,C] (`valid` [B]: which images are real), and sows g into
        the variable collection "gates" if that is collected; raises `UserError` for an x of another
        shape. See `Gate.__call__`.
        """
        check_maps(self, x)
        g = self.factor(x, valid)
        if not self.is_initializing() and self.is_mutable_collection(COLLECTION):
            self.sow(COLLECTION, "gate", g)
        return x * g.astype(x.dtype)


def handed_out(collected: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns the gates g of a pass as a flat dictionary by the path of the gate's module
    ("<path>_1" and so on for later uses), from `collected`, the nested variables of the collection
    "gates"; g is [B,H,W,C], with 1 in place of the axes that it does not depend on.
    """
    return {
        "/".join(path[:-1]) + (f"_{number}" if number else ""): g
        for path, several in flax.traverse_util.flatten_dict(dict(collected)).items()
        for number, g in enumerate(several)
    }


def any_over_batch(module: nn.Module) -> bool:
    """Returns whether a part of a module (`parts`) has `over_batch` set, as batch norm has."""
    parts: Parts = getattr(module, "parts", {})
    built = (made(table, getattr(module, field))(parent=None) for field, table in parts.items())
    return any(getattr(part, "over_batch", False) for part in built)


def check_maps(gate: Gate, x: jax.Array) -> None:
    """Raises `UserError`, which names the class of `gate`, unless x is [B,H,W,C] with H, W and C of
    at least 1; returns nothing.
    """
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise UserError(
            f"gate {type(gate).__name__}: got an array {list(x.shape)}; a gate takes feature maps"
            " [batch, height, width, channels], none of the last three 0"
        )


def reduced(gate: Gate, channels: int, reduction: int) -> int:
    """Returns max(1, floor(C / r)) channels; raises `UserError` if r is not at least 1."""
    at_least(1, f"gate {type(gate).__name__}", reduction=reduction)
    return max(1, channels // reduction)


def odd(gate: Gate, kernel: int) -> int:
    """Returns the size `kernel` unchanged; raises `UserError`, with the class of `gate` in its
    message, unless it is odd and at least 1.
    """
    if kernel < 1 or kernel % 2 == 0:
        raise UserError(
            f"gate {type(gate).__name__}: kernel={kernel}: expected an odd number of at least 1"
        )
    return kernel


def sigmoid(logits: jax.Array) -> jax.Array:
    """1 / (1 + exp(-logits)) in the inner precision."""
    return jax.nn.sigmoid(widened(logits))
