"""The blockwise kernel: a softmax over the keys that never holds the scores of all pairs; gradients
compute scores again.

Forward, for a block of queries and one block of keys after the other, with the largest score so far
m, the sum l and the context c:

    m' = max(m, max_j s_ij)        e_ij = exp(s_ij - m')
    l' = l exp(m - m') + sum_j e_ij        c' = c exp(m - m') + sum_j e_ij z_ij v_j        y = c / l

z is 0 or 1 / (1 - rate) under dropout, else 1. An alignment with another term in its denominator
(`Alignment.extra`) starts from m = extra, l = 1. One with a factor f_i for the scores of a query
(`Alignment.factor`) takes f_i s_ij in place of s_ij, and the keys that the query sees are counted
before. Kept for the gradients are y, m and l, with which e is computed again; with g the gradient
of y, u = g / l and t = u . y:

    dv_j = sum_i e_ij z_ij u_i        ds_ij = e_ij (z_ij (u_i . v_j) - t_i)        d extra = -sum_i exp(extra - m_i) t_i

and, with a factor, f_i ds_ij for the score s_ij and df_i = sum_j ds_ij s_ij.

`Elementwise` alignments (sigmoid) need no m and l; they get the number of keys a query sees,
counted before (`View.key_counts`). Blocks without allowed pairs are not computed, forward or backward;
blocks in which all pairs are allowed need no mask. Axis letters: B batch, H heads, K key heads, T
length, D and Dv widths; b and c the queries and keys of a block. Cost: forward 4, backward 10 D
FLOPs for each visible pair of an inner product. Memory: B H b c numbers a few times, and some
[B,H,T,D]. Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; M.
N. Rabe, C. Staats, "Self-attention Does Not Need O(n^2) Memory", 2021; T. Dao et al.,
"FlashAttention", NeurIPS 2022. They keep the logarithm of the sum, m + log l. We keep both, since
log l is lost to rounding beside a large m. Products are laid out for XLA's CPU backend: no large
matrix is transposed.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.kernels import ROWLESS
from attnlab.attention.kernels.blocks import Arrays, Block, block_positions, cut, padded
from attnlab.attention.kernels.passes import FORMS, with_factor
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.kernels.tracing import hoisted, split, with_gradient
from attnlab.attention.view import View, Where
from attnlab.layers.dense import Dropout, inner_dtype


@dataclasses.dataclass(frozen=True)
class Blockwise:
    """Memory is linear in the length, time in the number of visible pairs.

    Attributes:
      block: queries and keys of a block; 0 for a size that fits the caches.
    """

    block: int = 0

    weighs = False

    def misfit(self, alignment: Any) -> str | None:
        """Returns None if weights of the alignment class `alignment` can be computed block by
        block, by its attribute `form`, else a message (text) why not and what to choose.
        """
        if alignment.form in FORMS:
            return None
        return (
            f"never has the whole rows of scores that the alignment {alignment.__name__} needs;"
            " kernel='plain' has, or choose 'softmax'"
        )

    def refuses(self, inputs: AttentionInputs) -> str | None:
        """Returns None if the attention `inputs` can be computed block by block, else a
        message (text) why not and what to choose.
        """
        if inputs.between is not None:
            return ROWLESS
        if not isinstance(inputs.align, Alignment):
            return "never has the whole maps that this mechanism works on; kernel='plain' has"
        if not isinstance(inputs.drop, Dropout):
            return (
                "does not know this way of dropping weights; kernel='plain' does, or use"
                " `attnlab.layers.dense.Dropout`"
            )
        return self.misfit(type(inputs.align))

    def __call__(self, inputs: AttentionInputs) -> jax.Array:
        """Computes the context [B,H,Tq,Dv] of the attention `inputs` block by block, without maps
        of all pairs, also for its gradients; returns it in the dtype of the values.
        """
        block, arrays = prepared(inputs, self.block)
        assert isinstance(inputs.align, Alignment)
        forward, backward = (functools.partial(f, block) for f in FORMS[inputs.align.form])
        context = with_gradient(forward, backward, arrays)[:, :, : inputs.view.size[0]]
        return context.astype(inputs.values.dtype)  # type: ignore[no-any-return]


def prepared(inputs: AttentionInputs, side: int) -> tuple[Block, Arrays]:
    """Prepares the attention `inputs` for blocks of `side` queries and keys (0: a computed
    size), and returns the `Block` of grid and pure functions that all blocks share, and the
    `Arrays` of all tokens, padded to whole blocks.
    """
    assert isinstance(inputs.align, Alignment) and isinstance(inputs.drop, Dropout)
    grid = cut(inputs, side)
    queries, keys = grid.rows * grid.height, grid.columns * grid.width
    heads, shared = jax.tree.leaves(inputs.queries)[0].shape[1], inputs.values.shape[1]
    batch, size = inputs.values.shape[0], (inputs.values.shape[0], heads, grid.height, grid.width)

    def shapes(tree: Any, length: int) -> Any:
        return jax.tree.map(lambda x: of_shape((*x.shape[:2], length, *x.shape[3:]), x.dtype), tree)

    i_all = whole_blocks(inputs.view.positions, queries)
    j_all = whole_blocks(inputs.view.keys, keys)
    i, j = (
        jax.eval_shape(functools.partial(block_positions, n=0, size=side), where)
        for where, side in ((i_all, grid.height), (j_all, grid.width))
    )
    q, k = shapes(inputs.queries, grid.height), shapes(inputs.keys, grid.width)
    weights = of_shape(size, inputs.values.dtype)
    assert inputs.view.query is not None
    query, valid = inputs.view.query, padded(jnp.asarray(inputs.view.valid), 1, keys)
    functions = of_pairs(inputs, q, k, weights, i, j)
    extra = inputs.align.extra(heads)
    closed = {name: arrays for name, (_, arrays) in functions.items()}
    dtype = inner_dtype(
        *jax.tree.leaves(
            split((inputs.queries, inputs.keys, inputs.values, query, extra, closed))[0]
        )
    )
    if inputs.align.form == "elementwise":
        rows = of_shape((batch, grid.height, *query.shape[2:]), query.dtype)
        functions["align"] = hoisted(inputs.align, *aligned(size, dtype, rows, valid, i, j))
    arrays = Arrays(
        queries=jax.tree.map(lambda x: padded(x, 2, queries), inputs.queries),
        keys=jax.tree.map(lambda x: padded(x, 2, keys), inputs.keys),
        values=padded(inputs.values, 2, keys),
        query=padded(query, 1, queries),
        extra=extra,
        factor=None,
        closed={name: arrays for name, (_, arrays) in functions.items()},
        valid=valid,
        query_positions=i_all,
        key_positions=j_all,
        key=inputs.drop.key(),
    )
    pure = {name: function for name, (function, _) in functions.items()}
    block = Block(grid, heads, shared, pure, inputs.drop.rate, dtype)
    return block, with_factor(block, arrays, inputs.align)


def of_pairs(
    inputs: AttentionInputs, q: Any, k: Any, weights: Any, i: Any, j: Any
) -> dict[str, Any]:
    """Converts the functions of the attention `inputs` to pure functions of a block, and returns a
    dict from name ("rules" always; "bias", "score" if scores are no plain inner products, and
    "relative" where they exist) to the pair of function and list of arrays it closed over.

    Args:
      inputs: all inputs of the kernel.
      q, k, weights, i, j: examples of the arguments of these functions, of one block, for tracing.
    """
    functions: dict[str, Any] = {"rules": hoisted(inputs.view.allows, i, j)}
    if inputs.product and inputs.bias:
        functions["bias"] = hoisted(inputs.bias, q, i, j)
    if not inputs.product:
        functions["score"] = hoisted(inputs.score, q, k, i, j)
    if inputs.relative:
        functions["relative"] = hoisted(inputs.relative, weights, i, j)
    return functions


def of_shape(shape: tuple[int, ...], dtype: Any) -> Any:
    """An example of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)


def whole_blocks(where: Where | None, length: int) -> jax.Array:
    """The positions of the tokens, see `Where`, padded to whole blocks."""
    positions = jnp.asarray(where)
    return padded(positions, 1, length) if positions.ndim == 2 else positions


def aligned(
    size: tuple[int, ...], dtype: Any, query: Any, valid: jax.Array, i: Any, j: Any
) -> tuple[Any, ...]:
    """Returns the arguments of an elementwise alignment for one block as shapes and dtypes, for
    tracing: scores (`dtype`) and bool mask of shape `size` = [B,H,b,c], and the `View` of query,
    valid keys and positions i and j.

    Args:
      size: [B,H,b,c], of scores and mask.
      dtype: of the scores.
      query: shape and dtype of `View.query`.
      valid: [B,Tk], `View.valid`.
      i, j: shapes and dtypes of the positions of queries and keys.
    """
    counts = of_shape((*size[:3], 1), jnp.int32)

    def viewed(query: Any, counts: Any, i: Any, j: Any) -> View:
        return View(valid=valid, query=query, key_counts=counts).among(i, j)

    of_block = jax.eval_shape(viewed, query, counts, i, j)
    return of_shape(size, dtype), of_shape(size, bool), of_block
