"""Rows of one length cut from a stream of texts, in an order of their own: blocks, in which no text sees
another, and random crops.

    ids        0 1 2 3 4 5 6 7 8 9 ...                 N ids, all texts end to end, each with its EOS
    block i    ids i T ... (i + 1) T - 1, i = 0 ... ceil(N / T) - 1
    step k     blocks k b ... (k + 1) b - 1 in the order of the epoch

A row predicts the ids of its block: the first of a text from a BOS, every other one from the id before
it. "segments" numbers the texts of a row from 0 on; a text that began in another block is read from
where the row begins, without what stands before. So every id is predicted once in an epoch.

Crops begin anywhere, as small language models are often trained:

    begin_r ~ U{1, ..., N - T}, independently for every row r of every step
    source  = ids begin_r - 1 ... begin_r + T - 2,   target = ids begin_r ... begin_r + T - 1

Some ids are so read more often than others, and a row does not begin with a text. Nothing is padding.

Axis letters: b rows of a batch, T columns, N ids.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlab.data.batching import check_divisible
from attnlab.data.columns import Batch
from attnlab.data.vocabulary import OURS, Special
from attnlab.errors import UserError

_ROUNDS = 6


class ProcessBatches:
    """Base of batches by random access whose rows are spread over processes.

    Args:
      ids: what is read.
      size, length, process_index, process_count, multiple, extra, special: see `streams.Lanes`.

    Attributes:
      batches_per_epoch, shapes, counts, note: see `streams.Lanes`.

    Raises:
      UserError: rows not divisible by `multiple` or the processes, or nothing to read.
    """

    note: str

    def __init__(
        self,
        ids: Any,
        *,
        size: int,
        length: int,
        process_index: int = 0,
        process_count: int = 1,
        multiple: int = 1,
        extra: Mapping[str, np.ndarray] | None = None,
        special: Special = OURS,
    ) -> None:
        """Stores the ids and settings and which rows of the global batch this process reads; raises
        `UserError` unless `size` is divisible by `multiple` and the processes.
        """
        check_divisible(size, math.lcm(multiple, process_count))
        share = size // process_count
        self._ids, self._size, self._length, self._special = ids, size, length, special
        self._extra = dict(extra or {})
        self._rows = np.arange(process_index * share, (process_index + 1) * share)

    def _set_epoch(self, steps: int) -> None:
        """Sets the number of steps of an epoch and the one shape of their batches; raises
        `UserError` for 0 steps.
        """
        if not steps:
            raise UserError("config.data has no text to read")
        self.batches_per_epoch = steps
        self.shapes, self.counts = ((len(self._rows), self._length),), (steps,)


class Blocks(ProcessBatches):
    """Batches of blocks by random access, in memory that does not depend on N: `blocks(step)`
    depends on the arguments below and `step`, on nothing else.

    Args:
      ids: [N], EOS at the end of every text and nowhere else; or what has a method `windows`, as
        `shards.Ids`.
      size: b, over all processes and devices.
      length: T.
      seed: of the order, which is another one in every epoch; None for that of the texts.
      process_index, process_count, multiple, extra, special: see `streams.Lanes`.

    Attributes:
      batches_per_epoch, shapes, counts, note: see `streams.Lanes`.

    Raises:
      UserError: rows not divisible by `multiple` or the processes, or nothing to read.
    """

    def __init__(
        self, ids: Any, *, size: int, length: int, seed: int | None = None, **shared: Any
    ) -> None:
        """Computes the numbers of blocks of `length` ids and of steps in an epoch, the batch shape
        and the `note` about them; blocks stay in their order if `seed` is None.
        """
        super().__init__(ids, size=size, length=length, **shared)
        self._seed = seed
        self._count = -(-len(ids) // length)
        self._set_epoch(-(-self._count // size))
        order = "in their order" if seed is None else "shuffled"
        self.note = (
            f"{self._count:,} blocks of {length} tokens, {order}, {size} a step,"
            f" {self.batches_per_epoch:,} steps an epoch"
        )

    def __call__(self, step: int) -> Batch:
        """Returns this process's blocks of the batch of `step` (from 0), in a new random order in
        each epoch unless `seed` is None: "source", "target" (one id later), "segments" (number of
        the text in its row, -1 at padding) and `extra` columns, [b,T] int32, and "fresh" [b] ones.
        """
        epoch, number = divmod(int(step), self.batches_per_epoch)
        block = number * self._size + self._rows
        real = block < self._count
        if self._seed is not None:
            block[real] = permuted(block[real], self._count, (self._seed, epoch))
        begin = np.where(real, block * self._length, len(self._ids))
        read = windows(self._ids, begin - 1, self._length + 1)
        previous, target = read[:, :-1], read[:, 1:]
        starts = previous == self._special.eos
        starts[:, 0] |= begin == 0
        source = np.where(starts, np.int32(self._special.bos), previous)
        segments = np.cumsum(starts, axis=1, dtype=np.int32)
        segments -= segments[:, :1]
        remaining = len(self._ids) - begin  # ids from the beginning of a row on
        short = remaining < self._length
        if short.any():
            padding = np.arange(self._length) >= remaining[:, None]
            source[padding] = self._special.pad
            target = np.where(padding, np.int32(self._special.pad), target)
            segments[padding] = -1
        return {
            "source": source,
            "target": np.ascontiguousarray(target),
            "segments": segments,
            "fresh": np.ones(len(block), np.int32),
            **{name: windows(column, begin, self._length) for name, column in self._extra.items()},
        }


class Crops(ProcessBatches):
    """Batches of crops by random access: `crops(step)` depends on the arguments below and `step`,
    on nothing else.

    Args:
      ids: [N], all texts end to end; or what has a method `windows`, as `shards.Ids`.
      size: b, over all processes and devices.
      length: T.
      seed: of the draws.
      process_index, process_count, multiple, special: see `streams.Lanes`.

    Attributes:
      batches_per_epoch: steps in which as many ids are read as there are.
      shapes, counts, note: see `streams.Lanes`.

    Raises:
      UserError: rows not divisible by `multiple` or the processes, or fewer than T + 1 ids.
    """

    def __init__(self, ids: Any, *, size: int, length: int, seed: int, **shared: Any) -> None:
        """Stores the seed and computes the steps of an epoch, the batch shape and the `note`;
        raises `UserError` for fewer than `length` + 1 ids.
        """
        super().__init__(ids, size=size, length=length, **shared)
        if len(ids) <= length:
            raise UserError(
                f"config.batch.max_length={length}: config.data has {len(ids)} tokens, which are too"
                f" few for crops of that length; lower it below {len(ids)}"
            )
        self._seed = seed
        self._set_epoch(-(-len(ids) // (size * length)))
        self.note = f"{size} crops of {length} tokens a step, of {len(ids):,}"

    def __call__(self, step: int) -> Batch:
        """Returns this process's rows of the batch of `step` (from 0), random crops of the stream:
        "source" [b,T], "target" [b,T] one id later, and "fresh" [b] ones, int32.
        """
        draw = np.random.default_rng((self._seed, int(step)))
        begin = draw.integers(1, len(self._ids) - self._length + 1, self._size)[self._rows]
        read = windows(self._ids, begin - 1, self._length + 1)
        return {
            "source": np.ascontiguousarray(read[:, :-1]),
            "target": np.ascontiguousarray(read[:, 1:]),
            "fresh": np.ones(len(begin), np.int32),
        }


def windows(ids: Any, begin: np.ndarray, width: int) -> np.ndarray:
    """Returns for each row b the `width` consecutive elements of `ids` [N] from position `begin[b]`
    on, [b,width] int32, with 0 at positions outside of it.
    """
    if hasattr(ids, "windows"):
        rows: np.ndarray = ids.windows(begin, width)
        return rows
    positions = begin[:, None] + np.arange(width)
    inside = (positions >= 0) & (positions < len(ids))
    return np.where(inside, ids[np.where(inside, positions, 0)], 0).astype(np.int32)


def permuted(numbers: np.ndarray, count: int, seed: tuple[int, int]) -> np.ndarray:
    """Returns for each of `numbers`, all below `count`, its position in a pseudorandom permutation
    of 0 to `count` - 1 that `seed` determines, as int64, without building the permutation.

    A Feistel network over the next power of 4, applied again to what falls outside (J. Black, P.
    Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, section 5).
    """
    half = max(1, -(-(count - 1).bit_length() // 2))
    mask, shift = np.uint64(2**half - 1), np.uint64(half)
    keys = np.random.default_rng(seed).integers(2**63, size=_ROUNDS, dtype=np.uint64)

    def apply_network(x: np.ndarray) -> np.ndarray:
        """Applies the Feistel network once to the numbers x, a bijection of those below 4**half."""
        left, right = x >> shift, x & mask
        for key in keys:
            left, right = right, left ^ (_mix_bits(right + key) & mask)
        joined: np.ndarray = (left << shift) | right
        return joined

    positions = apply_network(numbers.astype(np.uint64))
    while (outside := positions >= count).any():
        positions[outside] = apply_network(positions[outside])
    return positions.astype(np.int64)


def _mix_bits(x: np.ndarray) -> np.ndarray:
    """Returns uint64 numbers mixed by the finalizer of MurmurHash3: every bit of x changes about
    half of the result's.
    """
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))
