"""Which kernel computes a look: the one that the config names, or for "auto" the one that was
measured to be fastest on a CPU, and cuDNN's in programs for NVIDIA GPUs.
"""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.kernels import BACKWARDLESS, KERNELS, WEIGHTLESS
from attnlab.attention.kernels.plain import AttentionInputs, Plain, plain_on, weigh
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import number
from attnlab.config.registry import import_object
from attnlab.errors import UserError

# from this many keys and queries on, blockwise was measured to be at least as fast as plain;
# docs/kernels.md has the figures
LEAST = 256


class Auto(Plain):
    """Windows alone where an alignment has small ones, blockwise for long looks that it can compute,
    gathered where few blocks of many are chosen,
    plain for the others and whenever weights are requested. In programs for NVIDIA GPUs cuDNN's in
    place of the last two, for what it can compute without reading a mask.
    """

    def __call__(self, look: AttentionInputs) -> jax.Array:
        """The context [B,H,Tq,Dv]."""
        return self.chosen(look)(look)

    def chosen(self, look: AttentionInputs) -> Any:
        """The kernel for this look."""
        if path := getattr(look.align, "own_kernel", ""):
            own_kernel = import_object(path, type)()
            if own_kernel.refuses(look) is None and own_kernel.pays(look):
                return own_kernel
        kernel: Any = Plain()
        if min(look.view.size) >= LEAST and number(look.view.positions) is not None:
            blockwise = KERNELS.resolve("blockwise")()
            kernel = kernel if blockwise.refuses(look) else blockwise
        if detected() and look.view.maskless:
            cudnn: Any = KERNELS.resolve("cudnn")()
            kernel = kernel if cudnn.lacks(look) else functools.partial(on_cuda, cudnn, kernel)
        return kernel


@functools.cache
def detected() -> bool:
    """Whether JAX finds cuDNN: without it, it cannot even trace this kernel."""
    x = jax.ShapeDtypeStruct((1, 8, 1, 8), jnp.bfloat16)
    product = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")
    try:
        jax.eval_shape(product, x, x, x)
    except RuntimeError:
        return False
    return True


def on_cuda(cudnn: Any, other: Any, look: AttentionInputs) -> jax.Array:
    """The context by cuDNN's kernel in programs that are lowered for NVIDIA GPUs, by another one
    in all others.
    """
    arrays = {"queries": look.queries, "keys": look.keys, "values": look.values}
    return jax.lax.platform_dependent(
        arrays,
        cuda=lambda arrays: cudnn(look.replace(**arrays)),
        default=lambda arrays: other(look.replace(**arrays)),
    )


def is_short(kernel: str, queries: int, keys: int) -> bool:
    """Whether a look of these sizes is computed by the plain kernel, whatever its parts are."""
    short = min(queries, keys) < LEAST and not detected()
    return kernel == "plain" or (kernel == "auto" and short)


def attend(
    module: nn.Module, look: AttentionInputs, kernel: str, weights: bool = False
) -> tuple[jax.Array, jax.Array | None, Any]:
    """The context [B,H,Tq,Dv] of a look, its weights [B,H,Tq,Tk] float32 if they or maps are
    requested, else None, and the state for the next look (`history`).

    During initialization the kernel is always plain: the parameters of a score are made where it is
    first called. A look without rows, queries or keys also uses the plain kernel: there is nothing
    to cut into blocks.

    Args:
      module: the mechanism; it knows whether maps are collected.
      look: the look.
      kernel: a name of `KERNELS`.
      weights: whether the weights are part of the result.

    Raises:
      UserError: the kernel cannot compute this look, or cannot return the requested weights.
    """
    chosen = KERNELS.resolve(kernel)()
    back = look.history is not None
    if isinstance(chosen, Auto):
        chosen = Plain() if weights or back else chosen.chosen(look)
    elif reason := (
        (BACKWARDLESS if back and not isinstance(chosen, Plain) else None)
        or (WEIGHTLESS if weights and not chosen.weighs else None)
        or chosen.refuses(look)
    ):
        raise UserError(f"{type(module).__name__}: kernel {kernel!r} {reason}")
    empty = not (look.values.shape[0] and all(look.view.size))
    if isinstance(chosen, Plain) or module.is_initializing() or empty:
        return plain_on(look)
    context = chosen(look)
    return context, weigh(look) if module.is_mutable_collection(MAPS) else None, None
