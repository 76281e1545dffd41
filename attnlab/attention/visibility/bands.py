"""Rules that depend only on the distance i - j: causal, sliding window, stride, and the dilated
window, made of the last two.

    Causal         j <= i
    Window(w)      |i - j| < w            w keys on each side, the query's own counted: 2 w - 1 in all
    Stride(r)      (i - j) mod r = 0
    dilated(w, r)  j = i + r m, |m| < w

Under `Causal` the window is the usual one of w keys *including self*, 0 <= i - j < w
(`local_window_size=(w - 1, 0)` of `jax.nn.dot_product_attention`). Two-sided conventions elsewhere:
"W on each side and self", |i - j| <= W, is `Window(W + 1)`; Longformer's "w in total and self" is
`Window(w // 2 + 1)`. A window per layer sees L (w - 1) + 1 positions after L causal layers, a
dilated one L r (w - 1) + 1. Cost in a kernel that skips blocks: 4 T w d FLOPs for a causal window
or a dilated one, against 4 T^2 d. Source: I. Beltagy, M. E. Peters, A. Cohan, "Longformer: The
Long-Document Transformer", 2020, section 3.1 (windows, plain and dilated); A. Vaswani et al.,
"Attention Is All You Need", NeurIPS 2017, section 3.2.3 (causal).
"""

from __future__ import annotations

import flax.struct
import jax

from attnlab.attention.visibility.rule import Rule, at_least, distances, grid


@flax.struct.dataclass
class Causal(Rule):
    """A query sees no later key, j <= i."""

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return j <= i

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return distances(i0, i1, j0, j1)[1] >= 0

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return distances(i0, i1, j0, j1)[0] >= 0

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return True


@flax.struct.dataclass
class Window(Rule):
    """A query sees the `width` last keys up to itself, its own included, and as many after it: |i -
    j| < width.

    Attributes:
      width: from 1 (only its own).
    """

    width: int = flax.struct.field(pytree_node=False)

    def __post_init__(self) -> None:
        at_least(1, "Window: width", self.width)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return abs(i - j) < self.width

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        low, high = distances(i0, i1, j0, j1)
        return low < self.width and high > -self.width

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        low, high = distances(i0, i1, j0, j1)
        return -self.width < low and high < self.width

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return self.width == 1

    @property
    def window(self) -> int:
        """See `Rule.window`."""
        return self.width


@flax.struct.dataclass
class Stride(Rule):
    """A query sees every `stride`-th key, counted from itself both ways: (i - j) mod stride = 0.

    Attributes:
      stride: from 1 (every key).
    """

    stride: int = flax.struct.field(pytree_node=False)

    def __post_init__(self) -> None:
        at_least(1, "Stride: stride", self.stride)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return (i - j) % self.stride == 0

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        low, high = distances(i0, i1, j0, j1)
        return high // self.stride * self.stride >= low

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        low, high = distances(i0, i1, j0, j1)
        return self.stride == 1 or (low == high and low % self.stride == 0)


def dilated(width: int, dilation: int) -> Rule:
    """The dilated window: `width` keys on each side at gaps of `dilation`, the query's own counted,
    j = i + dilation m, |m| < width.
    """
    at_least(1, "dilated: width", width)
    at_least(1, "dilated: dilation", dilation)
    return Window((width - 1) * dilation + 1) & Stride(dilation)
