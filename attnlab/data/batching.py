"""Batches as a function of (seed, step): length buckets, static shapes, every example once per
epoch.

Axis letters: N examples, b rows of a batch, L width of a bucket. All sequences of a batch share the
width L, so the number of compiled programs is the number of buckets.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from attnlab.data.columns import Batch, Examples
from attnlab.errors import UserError


class _Bucket(NamedTuple):
    """Examples of similar length: `width` L, `rows` b of the global batch, `members` [n] example
    numbers.
    """

    width: int
    rows: int
    members: np.ndarray


class Batches(Protocol):
    """This process's batches of training, each a function of its step, counted from 0.

    Attributes:
      note: what is left out, or how the data is read, in words; "" for nothing.
    """

    note: str

    def __call__(self, step: int) -> Batch:
        """The batch of a step."""


class TrainBatches:
    """Training batches by random access: `batches(step)` depends on the arguments below and `step`,
    on nothing else.

    Epoch e covers the steps e * n .. (e + 1) * n - 1 for n = `batches_per_epoch`, and in it every
    example occurs exactly once. An epoch's order is drawn from (seed, e): each bucket shuffled and
    cut into batches, its last one filled up with rows of padding, then the batches of all buckets
    shuffled.

    Args:
      examples: column by column.
      size: batch size over all processes and devices, in `unit`.
      unit: "sentences" (every batch has `size` rows) or "tokens" (a bucket of width L has size // L
        rows, rounded down to a multiple of `multiple` and at least that, so a batch holds about
        `size` positions per side).
      buckets: widths; a pair goes to the smallest that holds its longer side. Widths above
        `max_length` are cut to it, and `max_length` itself is always one.
      max_length: pairs with more tokens on a side (EOS included) are left out and counted.
      seed: of the order.
      process_index, process_count: this process gets rows [i b / n, (i + 1) b / n) of the b rows of
        the global batch.
      multiple: devices times accumulated micro-batches; b is divisible by it.
      things: what the examples are called in `note`.
      extra_tokens: tokens of a row that are not the example's: messages add them to `max_length`,
        which is without them.

    Attributes:
      batches_per_epoch: n above.
      examples: in an epoch.
      left_out: the number of examples that are too long.
      note: the same in words; "" for none.
      shapes: the (rows, width) that this process's batches take, one per bucket in use.
      counts: batches of an epoch in each of these shapes.

    Raises:
      UserError: rows not divisible by `multiple` or the processes, unknown unit, impossible widths,
        or no pair short enough.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        size: int,
        unit: str,
        buckets: Sequence[int],
        max_length: int,
        seed: int,
        process_index: int = 0,
        process_count: int = 1,
        multiple: int = 1,
        things: str = "examples",
        extra_tokens: int = 0,
    ) -> None:
        """Sorts the examples into buckets by length and computes the batches of an epoch, their
        shapes and the `note` about examples that are too long; raises `UserError` for a bad unit,
        size or bucket width, or if no example fits.
        """

        if unit not in ("sentences", "tokens"):
            raise UserError(f"config.batch.unit={unit!r}: expected 'sentences' or 'tokens'")
        if not 0 <= process_index < process_count:
            raise ValueError(f"process {process_index} of {process_count}")
        granule = math.lcm(multiple, process_count)
        if unit == "sentences":
            check_divisible(size, granule)
        self._examples, self._seed = examples, seed
        self._process = (process_index, process_count)
        self._buckets, self.left_out = _fill_buckets(
            examples.lengths, _widths(buckets, max_length), size, unit, granule, extra_tokens
        )
        left_out_note = (
            f"{self.left_out:,} {things} longer than batch.max_length={max_length + extra_tokens}"
            " tokens are left out, none is cut"
        )
        self.note = left_out_note if self.left_out else ""
        # Batch number k of an epoch belongs to the bucket j with first[j] <= k < first[j + 1].
        self._first = np.cumsum(
            [0] + [-(-len(bucket.members) // bucket.rows) for bucket in self._buckets]
        )
        self.batches_per_epoch = int(self._first[-1])
        self.examples = sum(len(bucket.members) for bucket in self._buckets)
        self.shapes = tuple(
            (bucket.rows // process_count, bucket.width) for bucket in self._buckets
        )
        self.counts = tuple(np.diff(self._first).tolist())
        self._plan: tuple[int, list[np.ndarray], np.ndarray] | None = None

    def __call__(self, step: int) -> Batch:
        """Returns this process's rows of the batch of `step` (from 0) as arrays by column name, see
        `Examples.batch`, in the random order of the step's epoch; the last batch of a bucket is
        filled up with padding.
        """
        epoch, position = divmod(int(step), self.batches_per_epoch)
        orders, numbers = self._plan_of(epoch)
        number = numbers[position]
        bucket_index = int(np.searchsorted(self._first, number, side="right")) - 1
        bucket = self._buckets[bucket_index]
        begin = int(number - self._first[bucket_index]) * bucket.rows
        rows = orders[bucket_index][begin : begin + bucket.rows]
        rows = np.pad(rows, (0, bucket.rows - len(rows)), constant_values=-1)
        index, count = self._process
        share = bucket.rows // count
        return self._examples.batch(rows[index * share : (index + 1) * share], bucket.width)

    def _plan_of(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns, drawn from (seed, epoch), the shuffled example numbers of each bucket, a list of
        arrays, and the shuffled order of all batches in `epoch`, an array; caches the plan of the
        latest epoch.
        """
        plan = self._plan  # read once: a prefetching thread may replace it
        if plan is None or plan[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            orders = [rng.permutation(bucket.members) for bucket in self._buckets]
            plan = self._plan = (epoch, orders, rng.permutation(self.batches_per_epoch))
        return plan[1], plan[2]


def evaluation_batches(
    examples: Examples, *, size: int, buckets: Sequence[int]
) -> list[tuple[np.ndarray, Batch]]:
    """Returns all examples exactly once, shortest first, as a list of (example numbers [size],
    batch with `size` rows) in few widths; the first batch is filled up with rows of padding,
    numbered -1.

    The short come first, so that the rows of a batch end their decoding together; a batch takes the
    smallest width that holds its longest pair. Nothing is too long: the widest bucket is doubled
    until it holds the longest example, or ends with it.

    Returns:
      [(indices [size], a batch of as many rows)]; the first one, which costs least, is filled up
      with rows of padding, whose index is -1.

    Raises:
      UserError: an impossible size or width.
    """
    if size < 1:
        raise UserError(f"config.batch.size={size} must be positive")
    lengths = examples.lengths
    widths = _widths(buckets, max(buckets, default=16))
    while len(lengths) and widths[-1] < lengths.max():
        widths = np.append(widths, min(2 * widths[-1], lengths.max()))
    order = np.argsort(lengths, kind="stable").astype(np.int32)
    order = np.insert(order, len(order) % size, np.full(-len(order) % size, -1, np.int32))
    batches = []
    for rows in order.reshape(-1, size):
        width = int(widths[np.searchsorted(widths, lengths[rows[rows >= 0]].max())])
        batches.append((rows, examples.batch(rows, width)))
    return batches


def _widths(buckets: Sequence[int], max_length: int) -> np.ndarray:
    """Returns the distinct bucket widths in ascending order, cut to `max_length`, which is always
    the last; raises `UserError` if one is below 1.
    """
    if max_length < 1 or any(width < 1 for width in buckets):
        raise UserError(
            f"config.batch.buckets={tuple(buckets)} and config.batch.max_length={max_length} must"
            " be positive"
        )
    return np.array(sorted({min(width, max_length) for width in buckets} | {max_length}))


def check_divisible(size: int, granule: int) -> None:
    """Raises `UserError`, which names the nearest valid sizes, unless the batch size is positive
    and divisible by `granule` (from devices, accumulation steps and processes).
    """
    if size % granule or size < 1:
        below, above = size // granule * granule, (max(size, 0) // granule + 1) * granule
        choices = f"{below} or {above}" if below > 0 else f"{above}"
        why = "devices x training.accumulate, and processes"
        raise UserError(
            f"config.batch.size={size} is not divisible by {granule} ({why}); take {choices}"
        )


def _fill_buckets(
    lengths: np.ndarray,
    widths: np.ndarray,
    size: int,
    unit: str,
    granule: int,
    extra_tokens: int,
) -> tuple[list[_Bucket], int]:
    """Returns a list of the buckets that have examples, each example number in the narrowest bucket
    that holds its length, and the number of examples longer than all widths; raises `UserError` if
    no example fits or the size is below 1.

    Args:
      lengths: [N], tokens of each example.
      widths: of the buckets, ascending.
      size, unit: see `TrainBatches`.
      granule: what the rows of a batch must be divisible by.
      extra_tokens: see `TrainBatches`.
    """
    if size < 1:
        raise UserError(f"config.batch.size={size} must be positive")
    bucket_numbers = np.searchsorted(widths, lengths)
    buckets = []
    for j, width in enumerate(map(int, widths)):
        members = np.flatnonzero(bucket_numbers == j).astype(np.int32)
        rows = size if unit == "sentences" else max(granule, size // width // granule * granule)
        if len(members):
            buckets.append(_Bucket(width, rows, members))
    if not buckets:
        shortest = (
            f"the shortest has {lengths.min() + extra_tokens} tokens"
            if len(lengths)
            else "there is none at all"
        )
        raise UserError(
            f"no sentence pair is within config.batch.max_length={widths[-1] + extra_tokens}: of"
            f" {len(lengths)} pairs, {shortest}"
        )
    return buckets, int((bucket_numbers == len(widths)).sum())
