"""Examples as columns: named arrays with a row for every example, and what a task declares of them.

A column is what one array of a batch is cut from. `Packed` holds sequences of different lengths (ids,
numbers beside them, the heads of a tree), padded on the right to the width of a batch; `Fixed` holds
arrays of one shape (labels, boxes, images), `Shared` such arrays that several examples have in
common; `SideBySide` puts several examples of another column into a row. Another kind, one that reads
images from files, say, is a class with `__len__`, `lengths` and `block`.

Axis letters: N examples, b rows of a batch, L width of a batch.
"""

import dataclasses
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, overload

import numpy as np

from attnlab.errors import UserError, nearest

Batch = dict[str, np.ndarray]
"""Named arrays with a leading axis of rows; what a task reads of them stands in its `columns`."""

ANY = "..."


class Column(Protocol):
    """One named array of the examples."""

    def __len__(self) -> int:
        """N."""

    @property
    def lengths(self) -> np.ndarray | None:
        """How much each example takes of the width of a batch, [N]; None if that is no matter."""

    def block(self, rows: np.ndarray, width: int) -> np.ndarray:
        """The rows `rows` [b] of a batch as [b,...]; -1 stands for a row of padding."""


class Packed(Sequence[np.ndarray]):
    """Many sequences of whole numbers in one flat array: 4 bytes a number and 8 a sequence, where a
    list of arrays takes over 100.

    Args:
      sequences: of ids, or of numbers that stand beside ids.
      pad: what a batch is filled up with.

    Attributes:
      ids: all sequences end to end, int32.
      offsets: sequence i is `ids[offsets[i]:offsets[i + 1]]`; [N + 1] int64.
      pad: see above.
    """

    def __init__(self, sequences: Iterable[np.ndarray | Sequence[int]], pad: int = 0) -> None:
        """Copies all sequences of ids end to end into one flat int32 array, and stores where each
        begins and the id `pad`, which fills up batches.
        """
        flat, ends = array("i"), array("q", [0])
        for sequence in sequences:
            flat.frombytes(np.asarray(sequence, np.int32).tobytes())
            ends.append(len(flat))
        self.ids = np.frombuffer(flat, np.int32) if flat else np.zeros(0, np.int32)
        self.offsets = np.frombuffer(ends, np.int64)
        self.pad = pad

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | list[np.ndarray]:
        """Returns sequence `index` as an array [length], or for a slice the list of its sequences;
        raises `IndexError` out of range.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        begin, end = self._bounds(index % len(self))
        return self.ids[begin:end]

    def _bounds(self, index: int) -> tuple[int, int]:
        """Where sequence `index` begins in `ids`, and where it ends."""
        return self.offsets[index], self.offsets[index + 1]

    @property
    def lengths(self) -> np.ndarray:
        """Returns the length of each sequence, [N] int64."""
        lengths: np.ndarray = np.diff(self.offsets)
        return lengths

    @classmethod
    def from_flat(cls, ids: np.ndarray, offsets: np.ndarray, pad: int) -> "Packed":
        """Makes a `Packed` from the ids of all sequences end to end and the `offsets` at which each
        begins [N+1], without copying them; `pad` fills up batches.
        """
        packed = Packed((), pad)
        packed.ids, packed.offsets = ids, offsets
        return packed

    def windows(self, width: int) -> "Packed":
        """Returns the same numbers as sequences of at most `width`, each longer one cut into
        several consecutive ones.
        """
        counts = -(-self.lengths // width)
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = np.repeat(self.offsets[:-1], counts) + width * number
        return Packed.from_flat(self.ids, np.append(begins, self.offsets[-1]), self.pad)

    def cut(self, width: int) -> "Packed":
        """Returns a new `Packed` of all sequences, where those longer than `width` have only their
        first `width` - 1 numbers and their last number, the end token.
        """
        lengths = self.lengths
        positions = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], lengths)
        mask = (positions < width - 1) | (positions == np.repeat(lengths, lengths) - 1)
        ends = np.cumsum(np.minimum(lengths, width))
        return Packed.from_flat(self.ids[mask], np.append([0], ends), self.pad)

    def block(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Returns the sequences with numbers `rows` [b] as an array [b,width] int32, padded on the
        right; for a row of -1 only padding.
        """
        start = self.offsets[rows]
        length = np.where(rows < 0, 0, self.offsets[rows + 1] - start)
        column = np.arange(width)
        inside = column < length[:, None]
        block = np.full((len(rows), width), self.pad, np.int32)
        block[inside] = self.ids[(start[:, None] + column)[inside]]
        return block


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed:
    """Arrays of one shape, one for every example; a row of padding is all 0.

    Attributes:
      values: [N,...].
    """

    values: np.ndarray

    lengths = None

    def __len__(self) -> int:
        return len(self.values)

    def block(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Returns the arrays with numbers `rows` [b] as [b,...], with zeros for a row of -1,
        whatever the `width` of the batch.
        """
        block: np.ndarray = self.values[self._positions(rows)]
        block[rows < 0] = 0
        return block

    def _positions(self, rows: np.ndarray) -> np.ndarray:
        """The places of rows among the arrays."""
        return rows


@dataclasses.dataclass(frozen=True, eq=False)
class Shared(Fixed):
    """Arrays of one shape that several examples have in common, each kept once (an image and the
    questions about it); a row of padding is all 0.

    Attributes:
      values: [M,...].
      index: [N] whole numbers, the array of each example.
    """

    index: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def _positions(self, rows: np.ndarray) -> np.ndarray:
        """Returns for each row the position of its array, several rows sharing one. See `Fixed`."""
        places: np.ndarray = self.index[rows]
        return places


@dataclasses.dataclass(frozen=True, eq=False)
class SideBySide:
    """Rows that each have one example of another column, or Q of them side by side.

    Attributes:
      column: the other one.
      index: [N] or [N,Q], the examples of each row; -1 for padding.
    """

    column: Column
    index: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    @property
    def lengths(self) -> np.ndarray | None:
        """Returns for each row the length of the longest of its examples, [N], or None if the inner
        column has no lengths.
        """
        if self.column.lengths is None:
            return None
        lengths = np.where(self.index < 0, 0, self.column.lengths[self.index])
        longest: np.ndarray = lengths.reshape(len(self), -1).max(axis=1)
        return longest

    def block(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Returns for each row of `rows` [b] its examples of the inner column, as [b,...] or
        [b,Q,...], only padding for a row of -1.
        """
        index = np.where((rows < 0).reshape(-1, *[1] * (self.index.ndim - 1)), -1, self.index[rows])
        flat = self.column.block(index.reshape(-1), width)
        return flat.reshape(*index.shape, *flat.shape[1:])


class Examples:
    """The examples of a split, column by column.

    Args:
      columns: each as a `Column`, an array of one shape for every example, or a list of sequences.

    Attributes:
      columns: by name, in the order in which they were given.

    Raises:
      ValueError: columns of several lengths, or none.
    """

    def __init__(
        self, **columns: Column | np.ndarray | Sequence[Sequence[int] | np.ndarray]
    ) -> None:
        """Stores the columns, arrays or lists of sequences, by name; raises `ValueError` for no
        column or columns of different lengths.
        """
        self.columns: dict[str, Column] = {name: _column(array) for name, array in columns.items()}
        if len(counts := {name: len(column) for name, column in self.columns.items()}) == 0:
            raise ValueError("examples need a column")
        if len(set(counts.values())) > 1:
            raise ValueError(f"columns of different lengths: {counts}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def packed(self, name: str) -> Packed:
        """Returns the column `name`, which must be a `Packed` of sequences.

        Raises:
          TypeError: it is of another kind.
        """
        column = self.columns[name]
        if not isinstance(column, Packed):
            raise TypeError(f"column {name!r} is no Packed")
        return column

    @property
    def sequences(self) -> list[Packed]:
        """The columns of sequences, in their order."""
        return [column for column in self.columns.values() if isinstance(column, Packed)]

    @property
    def lengths(self) -> np.ndarray:
        """Returns the length of each example, that of its longest column, ends of texts included,
        [N]; ones where no column has a length.
        """
        widths = [column.lengths for column in self.columns.values() if column.lengths is not None]
        longest: np.ndarray = np.max(widths, axis=0) if widths else np.ones(len(self), np.int64)
        return longest

    def cut(self, width: int) -> "Examples":
        """Returns the examples with all sequences shortened to at most `width`; see
        `Packed.cut`.
        """
        columns = self.columns.items()
        cut = {name: column.cut(width) for name, column in columns if isinstance(column, Packed)}
        return Examples(**self.columns | cut)

    def chosen(self, rows: np.ndarray) -> "Examples":
        """Returns new `Examples` with only the rows of these numbers [n], in this order."""
        columns = self.columns.items()
        return Examples(
            **{
                name: Packed((column[row] for row in rows), column.pad)
                if isinstance(column, Packed)
                else Fixed(column.block(rows, 1))
                for name, column in columns
            }
        )

    def batch(self, rows: np.ndarray, width: int) -> Batch:
        """Returns the examples `rows` [b] as a dict of every column, [b,...]; -1 gives padding."""
        return {name: column.block(rows, width) for name, column in self.columns.items()}


def _column(values: Column | np.ndarray | Sequence[Sequence[int] | np.ndarray]) -> Column:
    """Wraps an array as a `Fixed` column and a list of sequences as a `Packed` one; returns a
    column unchanged.
    """
    if isinstance(values, np.ndarray):
        return Fixed(values)
    return values if hasattr(values, "block") else Packed(values)  # type: ignore[arg-type,return-value]


@dataclasses.dataclass(frozen=True)
class Declared:
    """What a task declares of a column.

    Attributes:
      dtype: of its arrays, by NumPy's name.
      axes: those behind the rows: a name for what is known only with the batch ("T"), a number for
        what is always the same; None for any.
      optional: there may be none.
    """

    dtype: str
    axes: tuple[str | int, ...] | None = ()
    optional: bool = False

    def fits(self, array: np.ndarray) -> bool:
        """Returns whether an array of a batch has the declared dtype and, behind the batch axis,
        the declared number of axes and the sizes of fixed axes (any axes if none are declared).
        """
        if array.dtype != np.dtype(self.dtype):
            return False
        if self.axes is None:
            return True
        return len(self.axes) == array.ndim - 1 and all(
            isinstance(declared, str) or declared == size
            for declared, size in zip(self.axes, array.shape[1:], strict=True)
        )

    def __str__(self) -> str:
        axes = (ANY,) if self.axes is None else self.axes
        return f"{self.dtype} [{','.join(['B', *map(str, axes)])}]"


IDS = Declared("int32", ("T",))
"""Ids of tokens, padded on the right."""


def check(declared: Mapping[str, Declared], batch: Mapping[str, np.ndarray], where: str) -> None:
    """Raises `UserError`, which begins with `where`, unless a batch has every declared column that
    is not optional, with the declared dtype and axes, and no undeclared column.

    Raises:
      UserError: a column that is missing, that nobody has declared, or that is something else.
    """
    for name, column in declared.items():
        if name not in batch and not column.optional:
            raise UserError(f"{where}: a batch has no column {name!r}; {nearest(name, batch)}")
        if name in batch and not column.fits(batch[name]):
            axes = ",".join(["B", *map(str, batch[name].shape[1:])])
            raise UserError(
                f"{where}: column {name!r} is {batch[name].dtype} [{axes}], declared is {column}"
            )
    for name in batch:
        if name not in declared:
            raise UserError(f"{where}: column {name!r} is not declared; {nearest(name, declared)}")
