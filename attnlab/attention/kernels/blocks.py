"""How a look is cut into blocks, which blocks have an allowed pair, and what is computed of one block:
its scores, mask, dropout, part of the context, and gradients.

Axis letters: B batch, H heads, K key heads, Tq queries, Tk keys, D and Dv widths; b and c the queries
and keys of a block; rows are blocks of queries, columns blocks of keys.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.protocol import full_mask
from attnlab.attention.kernels.plain import AttentionInputs, regroup
from attnlab.attention.kernels.tracing import joined, split
from attnlab.attention.view import number, token_positions
from attnlab.layers.dense import dropped

# pairs of query, key, head and batch row in a block: at 4 bytes each they fit the caches of a
# core
BUDGET = 2**19
LONGEST = 512  # longer blocks are not faster and contain more masked pairs

Carry = Any
Pullback = Callable[[jax.Array], Any]


@dataclasses.dataclass(frozen=True)
class Listed:
    """The blocks of each row: row r has the columns[starts[r] : starts[r + 1]].

    Attributes:
      starts: [rows+1] int32; columns: one after the other, int32.
    """

    starts: np.ndarray
    columns: np.ndarray

    @classmethod
    def make(cls, mask: np.ndarray) -> "Listed":
        """From [rows,columns] bool."""
        starts = np.concatenate([[0], mask.sum(axis=1).cumsum()])
        return cls(starts.astype(np.int32), np.nonzero(mask)[1].astype(np.int32))


@dataclasses.dataclass(frozen=True)
class Grid:
    """Blocks of `height` queries and `width` keys; the last of either may be padded.

    Attributes:
      height, width: of a block.
      rows, columns: how many blocks.
      full: blocks in which every query sees every key; partial: other blocks that may have an
        allowed pair.
    """

    height: int
    width: int
    rows: int
    columns: int
    full: Listed
    partial: Listed

    def each_row(self, body: Callable[[Any, Carry], Carry], carry: Carry) -> Carry:
        """Runs carry = body(row, carry) for every row of blocks in turn, in a loop of JAX if there
        are several, and returns the last carry.
        """
        if self.rows == 1:
            return body(0, carry)
        return jax.lax.fori_loop(np.int32(0), np.int32(self.rows), body, carry)

    def each_block(
        self, row: Any, body: Callable[[Any, bool, Carry], Carry], carry: Carry
    ) -> Carry:
        """Calls carry = body(column, masked, carry) for each block of row number `row` that may
        have an allowed pair, first the blocks where all pairs are allowed (masked False), then the
        others (True), and returns the last carry.
        """
        for listed, masked in ((self.full, False), (self.partial, True)):
            if not len(listed.columns):
                continue
            if self.rows == 1 and self.columns == 1:
                carry = body(0, masked, carry)
                continue
            starts, columns = jnp.asarray(listed.starts), jnp.asarray(listed.columns)

            def step(
                n: Any, carry: Carry, columns: jax.Array = columns, masked: bool = masked
            ) -> Carry:
                return body(columns[n], masked, carry)

            carry = jax.lax.fori_loop(starts[row], starts[row + 1], step, carry)
        return carry


def cut(inputs: AttentionInputs, block: int) -> Grid:
    """Divides the queries and keys of the attention `inputs` into blocks of at most `block`
    each (0: the size that `longest` computes), and returns the `Grid`, with lists of the blocks
    without a mask and of the blocks that need a mask.
    """
    queries, keys = inputs.view.size
    height, width = (size(length, block or longest(inputs)) for length in (queries, keys))
    rows, columns = -(-queries // height), -(-keys // width)
    touched, full = visible(inputs, height, width, rows, columns)
    return Grid(height, width, rows, columns, Listed.make(full), Listed.make(touched & ~full))


def visible(
    inputs: AttentionInputs, height: int, width: int, rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns two bool arrays [rows,columns] for blocks of `height` queries and `width` keys of the
    attention `inputs`: blocks that may have an allowed pair, and blocks that need no mask; all
    and none if positions are not known during tracing.
    """
    touched, full = np.ones((rows, columns), bool), np.zeros((rows, columns), bool)
    view = inputs.view
    first, start, length = number(view.positions), number(view.keys), number(view.written)
    if first is None or start is None or length is None:
        return touched, full
    queries, keys = view.size
    written, unpadded = min(length, keys), view.all_valid
    for row, column in np.ndindex(rows, columns):
        i0, i1 = first + row * height, first + min((row + 1) * height, queries)
        j0, j1 = column * width, min((column + 1) * width, keys)
        ranges = i0, i1, start + j0, start + j1
        touched[row, column] = j0 < written and view.touches(*ranges)
        complete = unpadded and j1 - j0 == width and touched[row, column]
        full[row, column] = complete and view.everywhere(*ranges)
    return touched, full


def longest(inputs: AttentionInputs) -> int:
    """Computes the largest side of a block for the attention `inputs`, a power of two from 64
    to 512, so that the pairs of a block over all heads and batch rows stay near `BUDGET` (an eighth
    of it for scores that are no inner product).
    """
    batch, heads = jax.tree.leaves(inputs.queries)[0].shape[:2]
    # other scores work on arrays wider than the scores
    pairs = BUDGET // (batch * heads) // (1 if inputs.product else 8)
    return min(max(2 ** round(math.log2(max(pairs, 1)) / 2), 64), LONGEST)


def size(length: int, limit: int) -> int:
    """Returns the side of the fewest blocks of at most `limit` that a length can be cut into
    evenly, a multiple of 8 if there are several.
    """
    count = -(-length // limit)
    even = -(-length // max(count, 1))
    return max(even if count <= 1 or limit % 8 else -(-even // 8) * 8, 1)


def padded(x: jax.Array, axis: int, length: int) -> jax.Array:
    """x padded with zeros (False) to a length."""
    missing = length - x.shape[axis]
    return jnp.pad(x, [(0, missing if a == axis else 0) for a in range(x.ndim)]) if missing else x


def take(tree: Any, n: Any, size: int, axis: int = 2) -> Any:
    """Returns a tree like `tree` with each array cut to its block number `n`, the `size` entries
    from n * size on along `axis`; an array that has only `size` entries there is returned whole.
    """
    return jax.tree.map(
        lambda x: (
            x if x.shape[axis] == size else jax.lax.dynamic_slice_in_dim(x, n * size, size, axis)
        ),
        tree,
    )


def put(x: jax.Array, block: jax.Array, n: Any, axis: int = 2) -> jax.Array:
    """Returns x with its block number `n` along `axis` replaced by `block`, in the dtype of x."""
    size = block.shape[axis]
    block = block.astype(x.dtype)
    if x.shape[axis] == size:
        return block
    return jax.lax.dynamic_update_slice_in_dim(x, block, n * size, axis)


@flax.struct.dataclass
class Arrays:
    """The arrays that the functions of a `Block` depend on; lengths are padded to whole blocks.

    Attributes:
      queries, keys, values: see `AttentionInputs`.
      query: [B,Tq,dq], the query of the mechanism.
      extra: [H], see `Alignment.extra`, or None.
      factor: [B,H,Tq,1], see `Alignment.factor`, or None.
      closed: the arrays that the functions of the block close over, by the name of the function.
      valid: [B,Tk].
      query_positions, key_positions: the positions of queries and keys, see `Where`.
      key: the random key of dropout, or None while it is off.
    """

    queries: Any
    keys: Any
    values: jax.Array
    query: jax.Array
    extra: jax.Array | None
    factor: jax.Array | None
    closed: dict[str, list[Any]]
    valid: jax.Array
    query_positions: jax.Array
    key_positions: jax.Array
    key: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Block:
    """What is the same for all blocks of a look.

    Attributes:
      grid: the blocks.
      heads, key_heads: H and K.
      functions: "rules", "bias" or "score", "relative", "align": functions of their closed arrays
        and of the arguments that `AttentionInputs` says.
      rate: of dropout.
      dtype: the inner precision, of scores, sums and gradients.
    """

    grid: Grid
    heads: int
    key_heads: int
    functions: dict[str, Callable[..., Any]]
    rate: float
    dtype: Any

    def places(self, arrays: Arrays, row: Any, column: Any) -> tuple[jax.Array, jax.Array]:
        """Returns the positions of the queries in block row `row` and of the keys in block column
        `column`, [b] and [c], or [B,b] and [B,c].
        """
        return (
            block_positions(arrays.query_positions, row, self.grid.height),
            block_positions(arrays.key_positions, column, self.grid.width),
        )

    def allowed(self, arrays: Arrays, row: Any, column: Any) -> jax.Array:
        """Returns which query may see which key in the block at `row` and `column`, broadcastable
        to [B,H,b,c]; padding is never seen.
        """
        valid = take(arrays.valid, column, self.grid.width, 1)[:, None, None]
        rules = self.functions["rules"](arrays.closed["rules"], *self.places(arrays, row, column))
        return valid if rules is None else valid & rules

    def scored(
        self, arrays: Arrays, queries: Any, keys: Any, i: jax.Array, j: jax.Array
    ) -> tuple[jax.Array, Pullback]:
        """Computes the scores [B,H,b,c] float32 of a block's queries at positions i and keys at j,
        with the position bias, and returns them with a function from their gradient to that of
        (closed arrays, queries, keys). For inner products the gradient of keys comes as [B,K,D,c],
        see `upright`.
        """
        if "score" in self.functions:
            floats, fixed = split(arrays.closed["score"])

            def scores_of(floats: Any, q: Any, k: Any) -> jax.Array:
                return self.functions["score"](joined(floats, fixed), q, k, i, j).astype(self.dtype)  # type: ignore[no-any-return]

            return jax.vjp(scores_of, floats, queries, keys)
        (first, *unused), tree = jax.tree.flatten(queries)
        flat = regroup(first, self.key_heads)
        scores = regroup(
            jnp.einsum("bkqd,bktd->bkqt", flat, keys, preferred_element_type=self.dtype), self.heads
        )

        def pullback(grad: jax.Array) -> Any:
            """Computes gradients of queries and keys from that of the scores; none of others."""
            grad_low = regroup(grad.astype(first.dtype), self.key_heads)
            of_first = regroup(
                jnp.einsum("bkqt,bktd->bkqd", grad_low, keys, preferred_element_type=self.dtype),
                self.heads,
            )
            of_keys = jnp.einsum(
                "bkdq,bkqt->bkdt", flat.swapaxes(2, 3), grad_low, preferred_element_type=self.dtype
            )
            of_queries = jax.tree.unflatten(
                tree, [of_first, *(jnp.zeros(x.shape, self.dtype) for x in unused)]
            )
            return [], of_queries, of_keys

        if "bias" not in self.functions:
            return scores, pullback
        floats, fixed = split(arrays.closed["bias"])
        bias, of_bias = jax.vjp(
            lambda floats, q: self.functions["bias"](joined(floats, fixed), q, i, j),
            floats,
            queries,
        )

        def with_bias(grad: jax.Array) -> Any:
            """As `pullback`, with the gradients of the bias added."""
            _, of_queries, of_keys = pullback(grad)
            closed, bias_grad = of_bias(summed(grad, bias.shape).astype(bias.dtype))
            of_queries = jax.tree.map(lambda x, y: x + y.astype(x.dtype), of_queries, bias_grad)
            return closed, of_queries, of_keys

        return scores + bias.astype(self.dtype), with_bias

    @property
    def scoring(self) -> str:
        """The function whose closed arrays `scored` has gradients for."""
        return "score" if "score" in self.functions else "bias"

    def upright(self, gradient: Any) -> Any:
        """Gradients of keys in the layout of keys, [B,K,c,...]."""
        return gradient if "score" in self.functions else gradient.swapaxes(-1, -2)

    def dropout_factors(self, arrays: Arrays, row: Any, column: Any) -> jax.Array | None:
        """Draws the factors [B,H,b,c] that dropout multiplies the weights with (0 or 1 / (1 -
        rate)) in the block at grid indices `row` and `column`, the same at every call; returns None
        if dropout is off.
        """
        if arrays.key is None:
            return None
        shape = (arrays.values.shape[0], self.heads, self.grid.height, self.grid.width)
        return dropped(
            jnp.ones(shape, self.dtype),
            self.rate,
            jax.random.fold_in(arrays.key, row * self.grid.columns + column),
        )

    def summed_values(self, weights: jax.Array, values: jax.Array) -> jax.Array:
        """Computes the weighted sums of values, sum_j w_ij v_j [B,H,b,Dv] float32, of weights
        [B,H,b,c] and values [B,K,c,Dv].
        """
        low = regroup(weights.astype(values.dtype), self.key_heads)
        return regroup(
            jnp.einsum("bkqt,bktd->bkqd", low, values, preferred_element_type=self.dtype),
            self.heads,
        )

    def relative(
        self, arrays: Arrays, weights: jax.Array, i: jax.Array, j: jax.Array
    ) -> tuple[jax.Array | None, Pullback | None]:
        """Computes the term [B,H,b,Dv] that a position scheme adds to the context from weights
        [B,H,b,c] of queries at positions i and keys at j, and returns it with a function from its
        gradient to those of closed arrays and weights; (None, None) if it adds none.
        """
        if "relative" not in self.functions:
            return None, None
        floats, fixed = split(arrays.closed["relative"])
        return jax.vjp(
            lambda floats, weights: self.functions["relative"](
                joined(floats, fixed), weights, i, j
            ),
            floats,
            weights.astype(arrays.values.dtype),
        )


def count_visible(block: Block, arrays: Arrays, row: Any) -> jax.Array:
    """Counts the keys that each query in row number `row` of the blocks may see, over all blocks of
    the row, and returns int32 [B,H,b,1], b the queries of a block.
    """
    shape = (arrays.values.shape[0], block.heads, block.grid.height, 1)

    def count(column: Any, masked: bool, total: jax.Array) -> jax.Array:
        """Adds to `total` how many keys of one block each query may see."""
        if not masked:
            return total + block.grid.width
        return total + full_mask(block.allowed(arrays, row, column), block.grid.width).sum(
            axis=-1, keepdims=True, dtype=jnp.int32
        )

    return block.grid.each_block(row, count, jnp.zeros(shape, jnp.int32))


def block_positions(where: jax.Array, n: Any, size: int) -> jax.Array:
    """Returns the positions of the tokens of block number `n`, [size] or [B,size], in a sequence at
    positions `where`.
    """
    if np.ndim(where) == 2:
        return token_positions(take(where, n, size, 1), size)
    return token_positions(where + n * size, size)


def summed(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Sums x [B,H,b,c] over the axes on which `shape` has size 1, and returns it in that shape."""
    aligned = (1,) * (x.ndim - len(shape)) + tuple(shape)
    axes = tuple(axis for axis, size in enumerate(aligned) if size == 1 and x.shape[axis] > 1)
    return x.sum(axis=axes, keepdims=True).reshape(shape)
