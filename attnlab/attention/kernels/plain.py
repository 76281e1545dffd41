"""The plain kernel: all scores, all weights, then the weighted sum; every other kernel must equal
it. Also `AttentionInputs`, the input of a kernel, and which kernel computes a look (`attend`): the one
that the config names, or for "auto" the one that was measured to be fastest on a CPU, and cuDNN's in
programs for NVIDIA GPUs.

Axis letters: B batch, H heads, K key heads (H = K G, query head h reads key head h // G), Tq
queries, Tk keys, Dv value width. Cost: the sum of the parts; memory: some arrays [B,H,Tq,Tk], for
gradients too.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.interventions import changed_weights, weights_changed
from attnlab.attention.kernels import BACKWARDLESS, KERNELS, WEIGHTLESS
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import View, number
from attnlab.config.registry import import_object
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """One look at a memory, after all projections. It has 13 fields: one for each part that may act
    between projections and context, None where a look has no such part.

    Attributes:
      queries: tree of [B,H,Tq,...], keys: tree of [B,K,Tk,...]; what `score` takes.
      values: [B,K,Tk,Dv].
      score: `score(queries, keys, i, j)` -> [B,H,Tq,Tk] float32 for any blocks of queries and keys
        at positions i, j.
      view: the result of `View.onto`: the query, which query may see which key, and which slots of
        the memory hold a real token.
      align: the alignment, or a function around it with the same arguments, whose weights
        [B,H',Tq,Tk] may have another number of heads.
      drop: dropout of weights.
      relative: `relative(weights, i, j)` -> [B,H,Tq,Dv] added to the context (position schemes with
        values), or None.
      product: `score` is the inner product of the first array of `queries` with `keys`, one array,
        plus `bias`.
      history: the state of earlier looks (`mechanisms.heads.History`), or None; if a score looks
        back, the look has one query.
      after: `after(past, weights)` of a score that looks back.
      between: `between(scores, mask, view)` -> other scores and another mask, made from whole rows
        of scores: position schemes with the hook "row", selections. None for none.
      bias: `bias(queries, i, j)` -> broadcastable to [B,H,Tq,Tk], that part of `score`; None for
        none. Only where `product`.
    """

    queries: Any
    keys: Any
    values: jax.Array
    score: Callable[[Any, Any, jax.Array, jax.Array], jax.Array]
    view: View
    align: Alignment | Callable[[jax.Array, jax.Array | None, View], jax.Array]
    drop: Callable[[jax.Array], jax.Array]
    relative: Callable[[jax.Array, jax.Array, jax.Array], jax.Array | None] | None = None
    product: bool = False
    bias: Callable[[Any, jax.Array, jax.Array], jax.Array | None] | None = None
    history: Any = None
    after: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    between: Callable[[jax.Array, Any, View], tuple[jax.Array, Any]] | None = None

    def replace(self, **changes: Any) -> "AttentionInputs":
        """A copy with other fields."""
        return dataclasses.replace(self, **changes)


class Plain:
    """All scores at once; it can compute every look."""

    weighs = True

    def misfit(self, alignment: Any) -> str | None:
        """None: it can compute every look."""
        return None

    def refuses(self, inputs: AttentionInputs) -> str | None:
        """None: it can compute every look."""
        return None

    def __call__(self, inputs: AttentionInputs) -> jax.Array:
        """The context [B,H,Tq,Dv]."""
        return plain(inputs)[0]


def plain(
    inputs: AttentionInputs, module: nn.Module | None = None
) -> tuple[jax.Array, jax.Array, Any]:
    """Computes from the attention `inputs` the context [B,H,Tq,Dv], the weights [B,H,Tq,Tk]
    before dropout and the history for the next queries, continuing from `inputs.history` (None stays
    None). The weights of a `module` are those that an intervention makes of them, see
    `attention.interventions`.
    """
    weights, history = weigh(inputs)
    if module is not None:
        weights = changed_weights(module, weights, inputs)
    dropped = inputs.drop(weights).astype(inputs.values.dtype)
    context = regroup(
        jnp.einsum("bkqt,bktd->bkqd", regroup(dropped, inputs.values.shape[1]), inputs.values),
        weights.shape[1],
    )
    term = inputs.relative(dropped, inputs.view.i, inputs.view.j) if inputs.relative else None
    return context if term is None else context + term.astype(context.dtype), weights, history


def weigh(inputs: AttentionInputs) -> tuple[jax.Array, Any]:
    """Computes the weights [B,H,Tq,Tk] float32 of the attention `inputs`, before dropout, and
    returns them with the `History` for the next queries, None if `inputs.history` is None.
    """
    view, mask = inputs.view, inputs.view.allowed()
    scores = inputs.score(inputs.queries, inputs.keys, view.i, view.j)
    if inputs.between is not None:
        scores, mask = inputs.between(scores, mask, view)
    if inputs.history is None:
        return inputs.align(scores, mask, view), None
    past, state = inputs.history.score, inputs.history.alignment
    if state is None:
        weights = inputs.align(scores, mask, view)
    else:
        assert isinstance(inputs.align, Alignment)
        weights, state = inputs.align.go_on(scores, mask, view, state)
    if past is not None:
        assert inputs.after is not None
        past = inputs.after(past, weights[:, :, 0])
    return weights, inputs.history.replace(score=past, alignment=state)


def regroup(x: jax.Array, heads: int) -> jax.Array:
    """Reshapes x [B,n,t,...] to [B,heads,n*t/heads,...].

    [B,H,Tq,...] becomes [B,K,G*Tq,...] for K key heads, G = H / K, the query heads of a group side
    by side, so that they share the key head of the group without a copy; and that becomes
    [B,H,Tq,...] again for H heads.
    """
    if x.shape[1] == heads:
        return x
    return x.reshape(x.shape[0], heads, x.shape[1] * x.shape[2] // heads, *x.shape[3:])


# from this many keys and queries on, blockwise was measured to be at least as fast as plain;
# docs/kernels.md has the figures
LEAST = 256


class Auto(Plain):
    """Windows alone where an alignment has small ones, blockwise for long looks that it can compute,
    gathered where few blocks of many are chosen,
    plain for the others and whenever weights are requested. In programs for NVIDIA GPUs cuDNN's in
    place of the last two, for what it can compute without reading a mask.
    """

    def __call__(self, inputs: AttentionInputs) -> jax.Array:
        """The context [B,H,Tq,Dv]."""
        return self.chosen(inputs)(inputs)

    def chosen(self, inputs: AttentionInputs) -> Any:
        """Returns the kernel, a function of `AttentionInputs`, to compute `inputs` with: the
        alignment's own kernel if it can and pays, else blockwise for long inputs that it can
        compute, else plain; cuDNN replaces the last two on NVIDIA GPUs where it can.
        """
        if path := getattr(inputs.align, "own_kernel", ""):
            own_kernel = import_object(path, type)()
            if own_kernel.refuses(inputs) is None and own_kernel.pays(inputs):
                return own_kernel
        kernel: Any = Plain()
        if min(inputs.view.size) >= LEAST and number(inputs.view.positions) is not None:
            blockwise = KERNELS.resolve("blockwise")()
            kernel = kernel if blockwise.refuses(inputs) else blockwise
        if detected() and inputs.view.maskless:
            cudnn: Any = KERNELS.resolve("cudnn")()
            kernel = kernel if cudnn.lacks(inputs) else functools.partial(on_cuda, cudnn, kernel)
        return kernel


@functools.cache
def detected() -> bool:
    """Returns whether JAX finds cuDNN, by tracing its attention kernel, which raises without it."""
    x = jax.ShapeDtypeStruct((1, 8, 1, 8), jnp.bfloat16)
    product = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")
    try:
        jax.eval_shape(product, x, x, x)
    except RuntimeError:
        return False
    return True


def on_cuda(cudnn: Any, other: Any, inputs: AttentionInputs) -> jax.Array:
    """Computes the context [B,H,Tq,Dv] of the attention `inputs` by the kernel `cudnn` in
    programs that are lowered for NVIDIA GPUs, and by the kernel `other` in all others.
    """
    arrays = {"queries": inputs.queries, "keys": inputs.keys, "values": inputs.values}
    return jax.lax.platform_dependent(
        arrays,
        cuda=lambda arrays: cudnn(inputs.replace(**arrays)),
        default=lambda arrays: other(inputs.replace(**arrays)),
    )


def is_short(kernel: str, queries: int, keys: int) -> bool:
    """Returns whether attention of `queries` queries to `keys` keys is computed by the plain
    kernel: `kernel` is "plain", or "auto" with few queries or keys and without cuDNN; an alignment
    with a kernel of its own may differ.
    """
    short = min(queries, keys) < LEAST and not detected()
    return kernel == "plain" or (kernel == "auto" and short)


def attend(
    module: nn.Module, inputs: AttentionInputs, kernel: str, weights: bool = False
) -> tuple[jax.Array, jax.Array | None, Any]:
    """Computes with the kernel `kernel`, by name (plain at initialization, for empty inputs or
    changed weights), the context [B,H,Tq,Dv] of `inputs`, its weights [B,H,Tq,Tk] (None if not
    requested, recorded or computed anyway) and the history for the next queries; raises UserError
    if the kernel cannot.

    During initialization the kernel is always plain: the parameters of a score are made where it is
    first called. A look without rows, queries or keys also uses the plain kernel: there is nothing
    to cut into blocks.

    Args:
      module: the mechanism; it knows whether maps are collected.
      inputs: of the look.
      kernel: a name of `KERNELS`.
      weights: whether the weights are part of the result.

    Raises:
      UserError: the kernel cannot compute this look, or cannot return the requested weights.
    """
    chosen = KERNELS.resolve(kernel)()
    stateful = inputs.history is not None
    if isinstance(chosen, Auto):
        chosen = Plain() if weights or stateful else chosen.chosen(inputs)
    elif reason := (
        (BACKWARDLESS if stateful and not isinstance(chosen, Plain) else None)
        or (WEIGHTLESS if weights and not chosen.weighs else None)
        or chosen.refuses(inputs)
    ):
        raise UserError(f"{type(module).__name__}: kernel {kernel!r} {reason}")
    empty = not (inputs.values.shape[0] and all(inputs.view.size))
    if isinstance(chosen, Plain) or module.is_initializing() or empty or weights_changed():
        return plain(inputs, module)
    context = chosen(inputs)
    return context, weigh(inputs)[0] if module.is_mutable_collection(MAPS) else None, None
