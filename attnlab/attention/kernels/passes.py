"""Forward and backward passes of the blockwise kernel, for each form of alignments: "normalised", a
softmax, whose formulas stand in `blockwise`; and "elementwise", a sum over keys that needs no
normaliser.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, Alignment
from attnlab.attention.kernels.blocks import Arrays, Block, count_visible, put, take
from attnlab.attention.kernels.plain import regroup
from attnlab.attention.kernels.tracing import added, joined, split, zeros
from attnlab.attention.view import View

# several products read one value: it is computed once, not again for each of them
together = jax.lax.optimization_barrier


def with_factor(block: Block, arrays: Arrays, align: Alignment) -> Arrays:
    """Returns `arrays` with its field `factor` [B,H,Tq,1] set to the factor of each query's scores
    that the alignment `align` computes from the number of keys that the query may see; unchanged if
    the form of the alignment is not "normalised" or it has no factor.
    """
    if align.form != "normalised" or type(align).factor is Alignment.factor:
        return arrays
    grid, rows = block.grid, arrays.values.shape[0]
    none = jnp.zeros((rows, block.heads, grid.rows * grid.height, 1), jnp.int32)
    counted = grid.each_row(lambda row, all: put(all, count_visible(block, arrays, row), row), none)
    factor = align.factor(counted, block.heads, block.dtype)
    return arrays.replace(factor=factor)  # type: ignore[attr-defined, no-any-return]


def normalised_forward(block: Block, arrays: Arrays) -> tuple[jax.Array, Any]:
    """Computes the context [B,H,Tq,Dv] of `arrays`, block by block with the functions of `block`,
    for alignments that are a softmax; and what `normalised_backward` needs: the context, and for
    each query its largest score and its softmax denominator relative to that score [B,H,Tq,1]; all
    float32.
    """
    grid = block.grid
    lead = (arrays.values.shape[0], block.heads)
    outputs = [
        jnp.zeros((*lead, grid.rows * grid.height, width), block.dtype)
        for width in (arrays.values.shape[-1], 1, 1)
    ]
    low, mass = (jnp.full((*lead, grid.height, 1), value, block.dtype) for value in (LOW, 0.0))
    if arrays.extra is not None:
        low, mass = (
            jnp.broadcast_to(arrays.extra.astype(block.dtype)[:, None, None], low.shape),
            mass + 1.0,
        )

    def of_row(row: Any, outputs: list[jax.Array]) -> list[jax.Array]:
        """Computes the three of one row of blocks, and writes them into those of all rows."""
        queries, factor = take((arrays.queries, arrays.factor), row, grid.height)

        def of_block(column: Any, masked: bool, carry: Any) -> Any:
            """Updates the context so far (not yet divided), top and total by one more block."""
            context, top, total = carry
            keys, values = take((arrays.keys, arrays.values), column, grid.width)
            i, j = block.places(arrays, row, column)
            scores = times(block.scored(arrays, queries, keys, i, j)[0], factor)
            allowed = block.allowed(arrays, row, column) if masked else None
            higher = jnp.maximum(
                top,
                (scores if allowed is None else jnp.where(allowed, scores, LOW)).max(
                    axis=-1, keepdims=True
                ),
            )
            raised = together(exponential(scores, higher, allowed))
            factors = block.dropout_factors(arrays, row, column)
            weights = raised if factors is None else raised * factors
            shrink = jnp.exp(top - higher)
            term, _ = block.relative(arrays, weights, i, j)
            gained = block.summed_values(weights, values) + (0.0 if term is None else term)
            return (
                context * shrink + gained,
                higher,
                total * shrink + raised.sum(axis=-1, keepdims=True),
            )

        nothing = jnp.zeros((*lead, grid.height, arrays.values.shape[-1]), block.dtype)
        context, top, total = grid.each_block(row, of_block, (nothing, low, mass))
        context = context / jnp.where(total == 0.0, 1.0, total)
        return [put(x, y, row) for x, y in zip(outputs, (context, top, total), strict=True)]

    context, top, total = grid.each_row(of_row, outputs)
    return context, (context, top, total)


class Row(NamedTuple):
    """What the backward pass needs of one row of blocks.

    Attributes:
      queries: of the row; factor: see `Arrays`.
      scaled: u, the gradient of the context over the sum of the row.
      inner: t, u times the context.
      top: m, the largest score.
      flat: u by key heads, in the precision of the values.
    """

    queries: Any
    factor: jax.Array | None
    scaled: jax.Array
    inner: jax.Array
    top: jax.Array
    flat: jax.Array


def normalised_backward(block: Block, arrays: Arrays, residuals: Any, grad: jax.Array) -> Arrays:
    """Computes an `Arrays` of float32 gradients of all floats in `arrays` (None for others), from
    the gradient `grad` of the context and the second result of `normalised_forward`.
    """
    grid = block.grid
    context, top, total = residuals
    scaled = jnp.where(total == 0.0, 0.0, grad / jnp.where(total == 0.0, 1.0, total))
    inner = (scaled * context).sum(axis=-1, keepdims=True)
    by_row = arrays.queries, arrays.factor, scaled, inner, top
    sums = zeros(split(arrays)[0], block.dtype)
    closed = {
        name: sums.closed[name] for name in (block.scoring, "relative") if name in sums.closed
    }

    def of_row(row: Any, carry: Any) -> Any:
        """Adds the gradients from one row of blocks to those so far."""
        closed, of_rows, *of_columns = carry
        queries, f, u, t, m = take(by_row, row, grid.height)
        flat = regroup(u, block.key_heads).astype(arrays.values.dtype)

        def of_block(column: Any, masked: bool, carry: Any) -> Any:
            """Adds the gradients from one block to those so far."""
            closed, grads, of_keys, of_values = carry
            of_closed, for_row, for_keys, for_values = of_one_block(
                block, arrays, row, column, masked, Row(queries, f, u, t, m, flat)
            )
            closed = closed | {name: added(closed[name], term) for name, term in of_closed.items()}
            of_keys = jax.tree.map(
                lambda x, y: x.at[column].add(y.astype(x.dtype)), of_keys, for_keys
            )
            return (closed, added(grads, for_row), of_keys, of_values.at[column].add(for_values))

        begin = closed, zeros((queries, f), block.dtype), *of_columns
        closed, grads, *of_columns = grid.each_block(row, of_block, begin)
        return closed, jax.tree.map(lambda x, y: put(x, y, row), of_rows, grads), *of_columns

    closed, (of_queries, of_factor), of_keys, of_values = grid.each_row(
        of_row, (closed, (sums.queries, sums.factor), *by_column(block, arrays))
    )
    sums = sums.replace(
        queries=of_queries,
        factor=of_factor,
        keys=jax.tree.map(lambda x: side_by_side(block.upright(x)), of_keys),
        values=side_by_side(of_values.swapaxes(-1, -2)),
        closed={**sums.closed, **closed},
    )
    return sums if arrays.extra is None else sums.replace(extra=of_extra(block, arrays, top, inner))


def by_column(block: Block, arrays: Arrays) -> tuple[Any, jax.Array]:
    """Creates float32 zeros to which the gradients of keys and values from `of_one_block` are
    added: a tree like the keys and an array for the values, each shaped like the gradient of one
    block, with a new first axis for the columns of blocks.
    """
    grid, (*lead, _, width) = block.grid, arrays.values.shape
    keys = jax.tree.map(
        lambda x: jnp.zeros(
            (grid.columns, *key_gradient_shape(block, x.shape, grid.width)), block.dtype
        ),
        arrays.keys,
    )
    return keys, jnp.zeros((grid.columns, *lead, width, grid.width), block.dtype)


def of_one_block(
    block: Block, arrays: Arrays, row: Any, column: Any, masked: bool, saved: Row
) -> tuple[dict[str, Any], Any, Any, jax.Array]:
    """Computes the gradients that the block at (row, column) adds, a tuple of four: of closed
    arrays (dict by function name), of the pair (queries, factor), of keys and of values [B,K,Dv,c];
    `saved` has the forward results of the row.

    Args:
      block, arrays: of the look.
      row, column: of the block.
      masked: whether some pairs of the block are not allowed.
      saved: what the forward pass kept of the row.
    """
    keys, values = take((arrays.keys, arrays.values), column, block.grid.width)
    i, j = block.places(arrays, row, column)
    unscaled, pullback = block.scored(arrays, saved.queries, keys, i, j)
    scores = times(unscaled, saved.factor)
    raised = exponential(scores, saved.top, block.allowed(arrays, row, column) if masked else None)
    factors = block.dropout_factors(arrays, row, column)
    weights = raised if factors is None else raised * factors
    slope = regroup(
        jnp.einsum("bkqd,bktd->bkqt", saved.flat, values, preferred_element_type=block.dtype),
        block.heads,
    )
    of_closed = {}
    term, of_relative = block.relative(arrays, weights, i, j)
    if term is not None and of_relative is not None:
        of_closed["relative"], through = of_relative(saved.scaled.astype(term.dtype))
        slope = slope + through.astype(block.dtype)
    slope = raised * ((slope if factors is None else slope * factors) - saved.inner)
    for_factor = None
    if saved.factor is not None:  # what is masked may be huge, and times 0 not a number
        for_factor = jnp.where(slope == 0.0, 0.0, slope * unscaled).sum(axis=-1, keepdims=True)
    weights, slope = together((weights, times(slope, saved.factor)))
    low = regroup(weights.astype(values.dtype), block.key_heads)
    for_values = jnp.einsum(
        "bkdq,bkqt->bkdt", saved.flat.swapaxes(2, 3), low, preferred_element_type=block.dtype
    )
    of_scoring, for_queries, for_keys = pullback(slope)
    if block.scoring in arrays.closed:
        of_closed[block.scoring] = of_scoring
    return of_closed, (for_queries, for_factor), for_keys, for_values


def of_extra(block: Block, arrays: Arrays, top: jax.Array, inner: jax.Array) -> jax.Array:
    """Computes the gradient of `Arrays.extra`, [H], from the largest scores `top` and t = `inner`
    of all queries.
    """
    assert arrays.extra is not None
    raised = jnp.exp(arrays.extra.astype(block.dtype)[:, None, None] - top)
    return -(raised * inner).sum(axis=(0, 2, 3))


def times(x: jax.Array, factor: jax.Array | None) -> jax.Array:
    """x [B,H,b,c] times the factor of each query."""
    return x if factor is None else x * factor


def exponential(scores: jax.Array, top: jax.Array, allowed: jax.Array | None) -> jax.Array:
    """exp(s - m), exactly 0 where not allowed."""
    raised = jnp.exp(scores - top)
    return raised if allowed is None else jnp.where(allowed, raised, 0.0)


def key_gradient_shape(block: Block, shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """The shape of the gradient of one block of keys, as `Block.scored` gives it."""
    if "score" in block.functions:
        return (*shape[:2], width, *shape[3:])
    return (*shape[:2], shape[3], width)


def side_by_side(x: jax.Array) -> jax.Array:
    """[columns,B,K,c,...] to [B,K,Tk,...]."""
    count, batch, heads, width, *tail = x.shape
    return x[0] if count == 1 else jnp.moveaxis(x, 0, 2).reshape(batch, heads, count * width, *tail)


def gain(
    block: Block, arrays: Arrays, row: Any, column: Any, masked: bool, counts: jax.Array
) -> tuple[Callable[..., jax.Array], Any]:
    """Returns a function that computes the term [B,H,b,Dv] that the block at (row, column) adds to
    the context, and the tuple of its arguments: closed floating arrays, query, queries, keys,
    values of the block; `masked` if some pairs are not allowed.

    Args:
      block, arrays: of the look.
      row, column: of the block.
      masked: whether some pairs of the block are not allowed.
      counts: [B,H,b,1], how many keys each query may see.
    """
    grid = block.grid
    floats, fixed = split(arrays.closed)
    i, j = block.places(arrays, row, column)
    size = (arrays.values.shape[0], block.heads, grid.height, grid.width)
    allowed = (
        jnp.broadcast_to(block.allowed(arrays, row, column), size)
        if masked
        else jnp.ones(size, bool)
    )
    factors = block.dropout_factors(arrays, row, column)

    def context(
        floats: Any, query: jax.Array, queries: Any, keys: Any, values: jax.Array
    ) -> jax.Array:
        """Computes the term [B,H,b,Dv] that the block adds to the context."""
        inner = arrays.replace(closed=joined(floats, fixed))  # type: ignore[attr-defined]
        scores, _ = block.scored(inner, queries, keys, i, j)
        view = View(valid=arrays.valid, query=query, key_counts=counts).among(i, j)
        weights = block.functions["align"](inner.closed["align"], scores, allowed, view)
        weights = weights if factors is None else weights * factors
        term, _ = block.relative(inner, weights, i, j)
        summed = block.summed_values(weights, values)
        return summed if term is None else summed + term.astype(block.dtype)

    of_row = (take(arrays.query, row, grid.height, 1), take(arrays.queries, row, grid.height))
    return context, (floats, *of_row, *take((arrays.keys, arrays.values), column, grid.width))


def elementwise_forward(block: Block, arrays: Arrays) -> tuple[jax.Array, None]:
    """Computes the context [B,H,Tq,Dv] float32 of all queries in `arrays`, as the sum over blocks
    of the terms that `gain` computes with the functions of `block`, for alignments that weigh each
    pair by itself; and None, since `elementwise_backward` needs nothing else.
    """
    grid, width = block.grid, arrays.values.shape[-1]
    lead = (arrays.values.shape[0], block.heads)

    def of_row(row: Any, contexts: jax.Array) -> jax.Array:
        """Computes the context of one row of blocks and writes it into `contexts`, the one of all
        rows.
        """
        counts = count_visible(block, arrays, row)

        def of_block(column: Any, masked: bool, context: jax.Array) -> jax.Array:
            function, args = gain(block, arrays, row, column, masked, counts)
            return context + function(*args)

        return put(
            contexts,
            grid.each_block(row, of_block, jnp.zeros((*lead, grid.height, width), block.dtype)),
            row,
        )

    nothing = jnp.zeros((*lead, grid.rows * grid.height, width), block.dtype)
    return grid.each_row(of_row, nothing), None


def elementwise_backward(block: Block, arrays: Arrays, residuals: None, grad: jax.Array) -> Arrays:
    """Computes the gradients of all floating-point arrays in `arrays` from the gradient `grad`
    [B,H,Tq,Dv] of the context, and returns them as an `Arrays` in float32, with None in place of
    other arrays.
    """
    grid = block.grid
    sums = zeros(split(arrays)[0], block.dtype)

    def by_block(x: jax.Array) -> jax.Array:
        return jnp.zeros((grid.columns, *x.shape[:2], grid.width, *x.shape[3:]), block.dtype)

    by_column = jax.tree.map(by_block, (arrays.keys, arrays.values))

    def of_row(row: Any, carry: Any) -> Any:
        """Adds the gradients from one row of blocks to those so far."""
        closed, of_rows, of_columns = carry
        counts, part = count_visible(block, arrays, row), take(grad, row, grid.height)

        def of_block(column: Any, masked: bool, carry: Any) -> Any:
            """Adds the gradients from one block to those so far."""
            closed, of_row, of_columns = carry
            function, args = gain(block, arrays, row, column, masked, counts)
            for_closed, for_query, for_queries, *for_columns = jax.vjp(function, *args)[1](part)
            of_columns = jax.tree.map(
                lambda x, y: x.at[column].add(y.astype(x.dtype)), of_columns, tuple(for_columns)
            )
            return added(closed, for_closed), added(of_row, (for_query, for_queries)), of_columns

        begin = zeros(
            (take(arrays.query, row, grid.height, 1), take(arrays.queries, row, grid.height)),
            block.dtype,
        )
        closed, (for_query, for_queries), of_columns = grid.each_block(
            row, of_block, (closed, begin, of_columns)
        )
        of_query, of_queries = of_rows
        of_queries = jax.tree.map(lambda x, y: put(x, y, row), of_queries, for_queries)
        return closed, (put(of_query, for_query, row, 1), of_queries), of_columns

    begin = (sums.closed, (sums.query, sums.queries), by_column)
    closed, (of_query, of_queries), of_columns = grid.each_row(of_row, begin)
    of_keys, of_values = jax.tree.map(side_by_side, of_columns)
    return sums.replace(
        closed=closed, query=of_query, queries=of_queries, keys=of_keys, values=of_values
    )


FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "normalised": (normalised_forward, normalised_backward),
    "elementwise": (elementwise_forward, elementwise_backward),
}
"""The forward and the backward pass of each form of alignments; the first argument is the `Block`."""
