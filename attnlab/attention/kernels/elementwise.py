"""Blockwise attention for alignments of the form "elementwise": a sum over keys that needs no
normaliser; see `blockwise`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.kernels.block import Arrays, Block, count_visible
from attnlab.attention.kernels.blocks import put, take
from attnlab.attention.kernels.normalised import side_by_side
from attnlab.attention.kernels.tracing import added, joined, split, zeros
from attnlab.attention.view import View


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


def forward(block: Block, arrays: Arrays) -> tuple[jax.Array, None]:
    """Computes the context [B,H,Tq,Dv] float32 of all queries in `arrays`, as the sum over blocks
    of the terms that `gain` computes with the functions of `block`, for alignments that weigh each
    pair by itself; and None, since `backward` needs nothing else.
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


def backward(block: Block, arrays: Arrays, residuals: None, grad: jax.Array) -> Arrays:
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
