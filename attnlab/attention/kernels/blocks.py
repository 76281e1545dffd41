"""How a look is cut into blocks, and which blocks have an allowed pair.

Axis letters: Tq queries, Tk keys; rows are blocks of queries, columns blocks of keys.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.view import number

# pairs of query, key, head and batch row in a block: at 4 bytes each they fit the caches of a
# core
BUDGET = 2**19
LONGEST = 512  # longer blocks are not faster and contain more masked pairs

Carry = Any


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
