"""Texts as ids in files, which are looked into where they are asked for: corpora of any size in
constant memory.

`attnlab.data.shard_folder` says what the files are. Axis letters: N ids, D documents, b rows of a
batch, L width of a batch.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from attnlab.data.columns import Examples, Packed
from attnlab.data.dataset import Split
from attnlab.data.files import SplitFiles, part
from attnlab.data.learned import Learned, VocabularySettings
from attnlab.data.shard_folder import (
    ENDS,
    VOCABULARY,
    Index,
    check_content,
    digest,
    mapped,
    names,
    opened,
)
from attnlab.data.text import Texts
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.errors import UserError
from attnlab.records.files import expanded

AT_ONCE = 2**22  # ids that are looked through at a time


class Ids:
    """The ids of a folder, or a stretch of them, as an array [N] int32 that is read where it is
    asked for.

    Args:
      folder: of shards.
      index: its index.
      begin, end: the stretch.
    """

    dtype = np.dtype(np.int32)

    def __init__(self, folder: Path, index: Index, begin: int, end: int) -> None:
        """Stores the folder and the stretch of ids to read; no file is opened yet."""
        self._folder, self._dtype, self._length = folder, np.dtype(index.dtype), index.length
        self._begin, self._size = begin, end - begin
        self._files: list[np.ndarray | None] = [None] * len(index.shards)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        """Returns the ids, int32, at a position, a slice of step 1, or an array of positions of any
        shape, as NumPy indexing does; raises `IndexError` out of range.
        """
        if isinstance(index, slice):
            begin, end, step = index.indices(self._size)
            if step != 1:
                raise IndexError("step")
            return self._stretch(begin, max(begin, end))
        positions = np.asarray(index)
        if positions.size and not (-self._size <= positions.min() and positions.max() < self._size):
            raise IndexError(index)
        shards, offsets = np.divmod(positions % self._size + self._begin, self._length)
        ids = np.empty(positions.shape, np.int32)
        for number in np.unique(shards).tolist():
            in_shard = shards == number
            ids[in_shard] = self._file(number)[offsets[in_shard]]
        return ids[()]

    def windows(self, begin: np.ndarray, width: int) -> np.ndarray:
        """Returns for each b the `width` consecutive ids from position `begin[b]` on, [b,width]
        int32, with 0 at positions outside of the stretch.
        """
        ids = np.zeros((len(begin), width), np.int32)
        for row, first in enumerate(begin.tolist()):
            low, high = max(first, 0), min(first + width, self._size)
            if low < high:
                ids[row, low - first : high - first] = self._stretch(low, high)
        return ids

    def _stretch(self, begin: int, end: int) -> np.ndarray:
        """Reads the ids from position `begin` up to `end` of this stretch, [end - begin] int32,
        from as many shard files as needed.
        """
        ids, filled, start = np.empty(end - begin, np.int32), 0, begin + self._begin
        while filled < len(ids):
            number, offset = divmod(start + filled, self._length)
            part = self._file(number)[offset : offset + len(ids) - filled]
            ids[filled : filled + len(part)] = part
            filled += len(part)
        return ids

    def _file(self, number: int) -> np.ndarray:
        """Returns the ids of shard `number` as a memory-mapped array, opened at the first use."""
        file = self._files[number]
        if file is None:  # a thread that fetches ahead may do the same
            file = self._files[number] = mapped(
                self._folder / names(number)[0], self._dtype.newbyteorder("<")
            )
        return file


class Stored(Packed):
    """Some of the documents of a folder, one after another, as `Packed` has them; `offsets` and
    `lengths` are read when they are asked for, and take memory then.

    Args:
      folder: of shards.
      index: its index.
      first, last: from which document on, and before which.
    """

    def __init__(self, folder: Path, index: Index, first: int, last: int) -> None:
        """Maps the document ends of all shards of a folder into memory and computes which ids
        belong to the documents from number `first` up to, not including, `last`.
        """
        self._ends = [
            mapped(folder / names(number)[1], ENDS).reshape(-1, 2)
            for number in range(len(index.shards))
        ]
        self._length, self._range = index.length, np.array([first, last])
        self._before = np.cumsum([0, *(len(ends) for ends in self._ends)])
        self.begin, self.end = self._offset(first), self._offset(last)
        self.ids: Any = Ids(folder, index, self.begin, self.end)
        self.pad = index.special["pad"] or 0

    def __len__(self) -> int:
        first, last = self._range.tolist()
        return int(last - first)

    def _bounds(self, index: int) -> tuple[int, int]:
        number = index + int(self._range[0])
        return self._offset(number) - self.begin, self._offset(number + 1) - self.begin

    @functools.cached_property
    def offsets(self) -> np.ndarray:  # type: ignore[override]
        """Returns the position among these ids where each of the D documents begins, and the end of
        the last, [D+1] int64. See `Packed`; 8 bytes a document.
        """
        ends = np.concatenate(
            [[self.begin], *(part + start for start, part in self._of_documents(0, np.int64))]
        )
        offsets: np.ndarray = ends - self.begin
        return offsets

    @property
    def characters(self) -> np.ndarray:
        """Of each document, its end counted, [D] int64."""
        return np.concatenate([part for _, part in self._of_documents(1, np.int64)])

    def _of_documents(self, column: int, dtype: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Yields for each shard the number of ids before it and one column (0: ends, 1: characters)
        for these documents in it.
        """
        for number, ends in enumerate(self._ends):
            low, high = np.clip(self._range - self._before[number], 0, len(ends)).tolist()
            yield number * self._length, ends[low:high, column].astype(dtype)

    def _offset(self, number: int) -> int:
        """Returns the number of ids in the folder before its document `number`, which is where that
        begins.
        """
        if number == 0:
            return 0
        shard = int(np.searchsorted(self._before, number, side="left")) - 1
        end = self._ends[shard][number - 1 - self._before[shard], 0]
        return shard * self._length + int(end)


class Decoded(Sequence[str]):
    """Documents as texts, each made when it is asked for."""

    def __init__(self, ids: Packed, vocabulary: Vocabulary) -> None:
        self._ids, self._vocabulary = ids, vocabulary

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Decodes document `index` to its text, or for a slice those of its documents."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._vocabulary.decode(self._ids[index])


class StoredTexts(Texts):
    """`Texts` whose ids are on disk, and whose texts are made from them; `extra` has the counts."""

    def about(self, split: str) -> str:
        """Returns one line of text about a split: its size, and the kind and size of the shards'
        vocabulary, which the config does not decide. See `Texts.about`.
        """
        kind = self.vocabulary.settings["kind"]
        return f"{super().about(split)}, the shards' vocabulary: {kind}, {self.vocabulary.size:,}"

    def counts(self, split: str) -> dict[str, int]:
        """See `Texts.counts`."""
        return dict(self.extra[split])

    def characters(self, split: str) -> np.ndarray:
        """Returns the number of characters of each document of a split, as stored. See
        `Texts.characters`.
        """
        stored = self.ids[split]
        assert isinstance(stored, Stored)
        return stored.characters

    def spelt(self, split: str) -> bool:
        """See `Texts.spelt`."""
        return not self.extra[split]["unknown"]


@dataclass(frozen=True)
class Shards(SplitFiles):
    """Documents that the command `prepare` has made ids of; training reads them from disk.

    The vocabulary is that of the folders, whatever `config.vocabulary` says, unless that names the
    tokenizer of a model (kind "tokenizer"), which must then be the same.

    Attributes:
      directory: where the folders lie; "" for the current folder.
      train, valid, test: the folder of each split, or a part of its documents: "all[:98%]",
        "all[98%:99%]", "all[99%:]".
    """

    def loaded(
        self, settings: VocabularySettings, vocabulary: Vocabulary | None, splits: Sequence[str]
    ) -> Texts:
        """Returns the given splits as `Texts` whose ids are read from the shard folders when
        needed; raises `UserError` if a folder has another vocabulary, or `Changed` if a file has
        another hash. The test split is checked in any case, the others where they may have changed,
        see `check_content`; see `attnlab.data.text.Texts.loaded_by`.

        Args:
          settings: of the config; the folders have a vocabulary of their own.
          vocabulary: that of the run, if it has one.
          splits: which.

        Raises:
          UserError: a folder that is absent, cut short or damaged, or of another vocabulary; a part
            without documents.
          Changed: a file is not as it was written.
        """
        parts: dict[str, Split] = {}
        for split in splits:
            folder, index, first, last = self._find_part(split)
            if vocabulary is None:
                vocabulary = Vocabulary.load(folder / VOCABULARY)
            if index.vocabulary["sha256"] != digest(vocabulary):
                raise UserError(
                    f"config.data.{split}: {folder} was prepared with another vocabulary than"
                    " that of this run or of the other splits; prepare it again with"
                    " --vocabulary=FOLDER, the folder that has the right one"
                )
            ends = np.cumsum([shard.documents for shard in index.shards])
            low, high = np.searchsorted(ends, [first, last]).tolist()  # of the shards that are read
            shards = range(low, high + 1)
            check_content(folder, index, shards, vocabulary.size, always=split == "test")
            stored = Stored(folder, index, first, last)
            parts[split] = Split(
                Decoded(stored, vocabulary),
                Examples(ids=stored),
                hashlib.sha256(f"{index.sha256} {first} {last}".encode()).hexdigest(),
                _count_stored(stored, index, vocabulary.special),
            )
        assert vocabulary is not None
        return StoredTexts({}, {}, Learned.of_vocabulary(vocabulary), source=self).with_splits(
            parts
        )

    def _find_part(self, split: str) -> tuple[Path, Index, int, int]:
        """Returns the folder of a split, its index, and the first document of the configured part
        and the one after its last; raises `UserError` if the folder cannot be opened or the part
        has no document.
        """
        name, begin, end = part(split, getattr(self, split))
        folder = expanded(self.directory) / name
        try:
            index = opened(folder)
        except UserError as error:
            raise UserError(f"config.data.{split}: {error}") from error
        total = index.total("documents")
        first, last = total * begin // 100, total * end // 100
        if first == last:
            raise UserError(
                f"config.data.{split}={getattr(self, split)!r}: no document of the {total:,} in"
                f" {folder}"
            )
        return folder, index, first, last


def in_parts(ids: Any) -> Iterator[np.ndarray]:
    """Yields an array [N], or what can be sliced like one, in consecutive parts of at most
    `AT_ONCE`.
    """
    for begin in range(0, len(ids), AT_ONCE):
        yield ids[begin : begin + AT_ONCE]


def _count_stored(stored: Stored, index: Index, special: Special) -> dict[str, int]:
    """Returns as a dict the numbers of texts, tokens, unknown tokens and characters of the stored
    documents, from the index for a whole folder, else by reading them.
    """
    if len(stored) == index.total("documents"):
        unknown, characters = index.total("unknown"), index.total("characters")
    else:
        unknown = sum(special.unknown(part) for part in in_parts(stored.ids))
        characters = int(stored.characters.sum())
    tokens = len(stored.ids)
    return {"texts": len(stored), "tokens": tokens, "unknown": unknown, "characters": characters}
