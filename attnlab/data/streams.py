"""Batches of running text as a function of the step: a stream cut into lanes, texts in turn, or
texts apart from each other; for texts packed into rows see `attnlab.data.blocks`.

Truncated back-propagation reads in lanes: row r of every batch goes on where row r of the batch
before ended. Of a stream:

    ids        0 1 2 3 4 5 6 7 8 9 ...                 N ids, all texts end to end, each with its EOS
    lane r     ids r C ... (r + 1) C - 1               b lanes of C = ceil(N / b)
    step k     columns k T ... (k + 1) T - 1 of every lane, k = 0 ... ceil(C / T) - 1; then the next epoch

Of texts in turn: every lane reads whole texts, one after another, and each begins in a step of its
own; it goes to the lane that is free first. In either way every id is predicted exactly once in an
epoch, from the id that stands before it: the first of a stream from an EOS, as a line that follows
another, the first of a text from a BOS. Axis letters: b rows of a batch, T columns, N ids, C
columns of a lane.
"""

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlab.data.batching import TrainBatches
from attnlab.data.blocks import Blocks, ProcessBatches
from attnlab.data.columns import Batch, Examples, Packed
from attnlab.data.vocabulary import OURS, Special

NONE = -1  # no token is read first


def first_of(texts: str, special: Special = OURS) -> int:
    """What is read before the first token of all, by how texts are read."""
    return special.eos if texts == "joined" else special.bos


class _Pieces(ProcessBatches):
    """Base of batches that read on, from step to step, where the rows of the step before ended."""

    def _pieces(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns for each row of this process, at the step `number` of an epoch, where in the ids it
        begins, where they end, what is read before the first of them (`NONE` for the id before it),
        and 1 where nothing is known of what came before: four arrays [b].
        """
        raise NotImplementedError

    def __call__(self, step: int) -> Batch:
        """Returns this process's rows of the batch of `step` (from 0), "target" (the next `length`
        ids of each lane, padding past its end), "source" (the id before each) and the columns of
        `extra`, all [b,T], and "fresh" [b], 1 in rows that do not continue the step before.
        """
        begin, end, first, fresh = self._pieces(int(step) % self.batches_per_epoch)
        positions = begin[:, None] + np.arange(self._length)
        real = positions < end[:, None]
        positions = np.where(real, positions, 0)
        previous = self._ids[positions - 1]
        previous[:, 0] = np.where(first != NONE, first, previous[:, 0])
        columns = {"source": previous, "target": self._ids[positions]}
        pad = self._special.pad
        batch = {name: np.where(real, ids, pad).astype(np.int32) for name, ids in columns.items()}
        extra = {name: np.where(real, ids[positions], 0) for name, ids in self._extra.items()}
        return batch | extra | {"fresh": fresh}


class Lanes(_Pieces):
    """Batches of a stream by random access: `batches(step)` depends on the arguments below and
    `step`, on nothing else.

    Args:
      ids: [N] int32.
      size: b, over all processes and devices.
      length: T.
      process_index, process_count: this process gets rows [i b / n, (i + 1) b / n).
      multiple: devices times accumulated micro-batches; b is divisible by it.
      extra: other arrays [N], to go with the targets under their names.
      special: ids of the vocabulary.

    Attributes:
      batches_per_epoch: ceil(C / T).
      shapes, counts: see `TrainBatches`; there is one shape. At the end of a lane its last columns
        are padding.
      note: how it is read, in words.

    Raises:
      UserError: rows not divisible by `multiple` or the processes, or nothing to read.
    """

    def __init__(self, ids: np.ndarray, *, size: int, length: int, **shared: Any) -> None:
        """Divides the stream of ids into one lane per row of a batch, and computes the steps of an
        epoch, the batch shape and the `note`.
        """
        super().__init__(ids, size=size, length=length, **shared)
        self._columns = -(-len(ids) // size)
        self._begin = self._rows * self._columns
        self._set_epoch(-(-self._columns // length))
        self.note = (
            f"one stream in {size} lanes, {length} tokens of each at a time,"
            f" {self.batches_per_epoch:,} steps an epoch"
        )

    def _pieces(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns four arrays [b] for the rows of this process at the step `number` of an epoch:
        where in the ids each begins, where its lane ends, what is read before its first id (EOS at
        the very first id, else `NONE`), and 1 in the first step of an epoch, else 0. See `_Pieces`.
        """
        begin = self._begin + number * self._length
        end = np.minimum(self._begin + self._columns, len(self._ids))
        first = np.where(begin == 0, first_of("joined", self._special), NONE)
        return begin, end, first, np.full(len(begin), number == 0, np.int32)


class Turns(_Pieces):
    """Batches of long texts by random access, each read over as many steps as it takes; in the
    order of the texts, whatever the epoch.

    Args:
      ids: the texts, EOS at their ends.
      size, length, process_index, process_count, multiple, extra, special: see `Lanes`.

    Attributes:
      batches_per_epoch: the steps of the lane that has most to read; the others end with rows of
        padding.
      shapes, counts, note: see `Lanes`.
    """

    def __init__(self, ids: Packed, *, size: int, length: int, **shared: Any) -> None:
        """Assigns each text to the lane that is free first, and computes for each row of this
        process and each step which ids to read and whether a text begins, the steps of an epoch and
        the `note`; raises `UserError` if `size` cannot be divided or there are no ids.
        """
        super().__init__(ids, size=size, length=length, **shared)
        self._ids = ids.ids
        steps = -(-ids.lengths // length)
        lane, begin, longest = _assign_lanes(steps, size)
        self._set_epoch(longest)
        # which of its steps each is
        step_index = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
        lane_steps = np.repeat(lane, steps), np.repeat(begin, steps) + step_index

        def table(values: np.ndarray) -> np.ndarray:
            """Places one value per step of each text at its (lane, step) and returns the rows of
            this process, zeros elsewhere.
            """
            all_lanes = np.zeros((size, longest), np.int64)
            all_lanes[lane_steps] = values
            return all_lanes[self._rows]

        self._begin = table(np.repeat(ids.offsets[:-1], steps) + step_index * length)
        # of the text; no later than its begin where there is none
        self._end = table(np.repeat(ids.offsets[1:], steps))
        self._fresh = table(step_index == 0).astype(np.int32)
        self.note = (
            f"texts in turn in {size} lanes, {length} tokens of each at a time,"
            f" {self.batches_per_epoch:,} steps an epoch"
        )

    def _pieces(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns four arrays [b] for the rows of this process at the step `number` of an epoch:
        where in the ids each begins, where its text ends, what is read before its first id (BOS
        where a text begins, else `NONE`), and 1 where a text begins, else 0. See `_Pieces`.
        """
        fresh = self._fresh[:, number]
        first = np.where(fresh == 1, first_of("in_turn", self._special), NONE)
        return self._begin[:, number], self._end[:, number], first, fresh


def _assign_lanes(steps: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Assigns each text, given the number of steps that it takes, to the one of `size` lanes that
    is free first, and returns two arrays, the lane and the first step of each text, and the number
    of steps of the longest lane.
    """
    free = [(0, lane) for lane in range(size)]
    placed = []
    for count in steps.tolist():
        begin, lane = heapq.heappop(free)
        placed.append((lane, begin))
        heapq.heappush(free, (begin + count, lane))
    lanes, begins = np.array(placed, int).reshape(-1, 2).T
    return lanes, begins, max(free)[0]


class Apart(TrainBatches):
    """Training batches of whole texts, each read from its beginning: source BOS w_1 ... w_n, target
    w_1 ... w_n EOS.

    Args:
      ids: the texts, EOS at their ends.
      size, max_length, seed, process_index, process_count, multiple, extra_tokens: see `TrainBatches`.
      windows: texts longer than `max_length` are read in windows of that length, see `shifted_texts`.
      special: see `Lanes`.
    """

    def __init__(
        self,
        ids: Packed,
        *,
        size: int,
        max_length: int,
        windows: bool = False,
        special: Special = OURS,
        **options: Any,
    ) -> None:
        """Makes each text an example (BOS before it in the source), or several windows with
        `windows`, in buckets of widths up to `max_length`.
        """
        super().__init__(
            shifted_texts(ids, special, max_length if windows else None),
            size=size,
            unit="sentences",
            buckets=widths(max_length),
            max_length=max_length,
            things="texts",
            **options,
        )

    def __call__(self, step: int) -> Batch:
        """Returns this process's rows of the batch of `step`, whole texts or windows: "source" and
        "target" [b,L], "fresh" [b] ones.
        """
        batch = super().__call__(step)
        return {**batch, "fresh": np.ones(len(batch["source"]), np.int32)}


def lanes(
    texts: str, ids: Packed, *, extra: Mapping[str, Packed] | None = None, **options: Any
) -> Lanes | Turns | Blocks:
    """Returns the batches of running text that the mode `texts` names: `Lanes` for "joined" and
    "crops", `Blocks` for "packed", else `Turns`. `extra` has numbers for each of the ids, to go
    with the targets.
    """
    numbers = {name: column.ids for name, column in (extra or {}).items()}
    if texts == "packed":
        return Blocks(ids.ids, extra=numbers, **options)
    if texts in ("joined", "crops"):
        return Lanes(ids.ids, extra=numbers, **options)
    return Turns(ids, extra=numbers, **options)


def shifted_texts(ids: Packed, special: Special = OURS, window: int | None = None) -> Examples:
    """Returns the examples of texts with "target", all ids of each text, and "source", BOS and all
    but the last of them. In windows of so many tokens each one but the first of a text begins with
    the id before it, as a row of `blocks.Blocks` does.
    """
    read = np.append([first_of("apart", special)], ids.ids[:-1]).astype(np.int32)
    read[ids.offsets[:-1]] = first_of("apart", special)
    target = ids if window is None else ids.windows(window)
    return Examples(source=Packed.from_flat(read, target.offsets, ids.pad), target=target)


def widths(longest: int) -> tuple[int, ...]:
    """The widths that batches of texts take: a quarter, a half and all of the longest."""
    return tuple(sorted({max(1, -(-longest // part)) for part in (4, 2, 1)}))
