"""A folder of shards: its files, what its index says, and whether they are as they were written.

    index.json           what is in it: counts, type of ids, special ids, hashes of vocabulary and text
    vocabulary.json      see `Vocabulary.save`
    00000.tokens         ids of all documents end to end, EOS at the end of each; little-endian uint16
                         or uint32, as many in each file as the index says, fewer only in the last
    00000.documents      uint32 [D,2]: for every document that ends in these ids, where, and its characters

`launch.py prepare` writes it (`attnlab.data.preparing`). Whoever reads it holds the files against
the index first: all of their sizes (`opened`), and the content of those it needs (`check_content`).
"""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from attnlab.data.files import alike
from attnlab.data.json_files import digest_of
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.records.files import cache_folder, write_atomic
from attnlab.records.json_kinds import Damaged, read, read_file
from attnlab.records.provenance import Changed

INDEX, VOCABULARY = "index.json", "vocabulary.json"
FORMAT = "attnlab shards 1"
ENDS = np.dtype("<u4")
_REMEDY = "run the 'prepare' command that made it again, or put back a good copy"
_SETTLED = 2 * 10**9  # ns after which another change of a file has another time, on any file system


@dataclass(frozen=True)
class Shard:
    """What a pair of files has: ids, documents that end in them, those that are unknown, characters
    of the documents (their ends counted), and the SHA-256 of both files.
    """

    tokens: int
    documents: int
    unknown: int
    characters: int
    sha256: tuple[str, str]


@dataclass(frozen=True)
class Index:
    """The content of `index.json`.

    Attributes:
      dtype: of the ids.
      length: ids of a shard; the last has fewer.
      special: the ids that are no text, by name.
      vocabulary: its `digest`, size and settings.
      source: see `Corpus.fingerprint`.
      skipped: records without text, which were left out.
      shards: in their order.
      sha256: of all the rest.
    """

    format: str
    dtype: Literal["uint16", "uint32"]
    length: int
    special: dict[str, int | None]
    vocabulary: dict[str, Any]
    source: dict[str, Any]
    skipped: int
    shards: tuple[Shard, ...]
    sha256: str = ""

    def sealed(self) -> "Index":
        """The same with its hash."""
        return dataclasses.replace(self, sha256=self._hash())

    @property
    def intact(self) -> bool:
        """Whether nothing of it has changed."""
        return self.format == FORMAT and self.sha256 == self._hash()

    def total(self, field: str) -> int:
        """The sum over all shards."""
        return sum(getattr(shard, field) for shard in self.shards)

    def _hash(self) -> str:
        return digest_of(dataclasses.asdict(dataclasses.replace(self, sha256="")))


def names(number: int) -> tuple[str, str]:
    """The files of a shard: ids and documents."""
    return f"{number:05}.tokens", f"{number:05}.documents"


def digest(vocabulary: Vocabulary) -> str:
    """SHA-256 of what makes ids of texts; not of where it came from."""
    return digest_of([vocabulary.to_json(), vocabulary.settings["kind"], vocabulary.size])


def opened(folder: Path) -> Index:
    """Reads and returns the index of a folder of shards; raises `UserError` unless there is an
    index, its checksum is right, and all shard files exist with the right size.

    Raises:
      UserError: they are not, or there is no such folder.
    """
    try:
        index = read_file(folder / INDEX, Index, _REMEDY)
    except OSError as error:
        raise UserError(f"cannot read {folder / INDEX}: {error.strerror or error}") from error
    if index is None:
        unfinished = (folder / "plan.json").is_file()
        why = (
            "is not prepared to its end; run its 'prepare' command again, which goes on"
            if unfinished
            else f"has no {INDEX}; 'prepare --to={folder} --from=FILES' makes one"
            if folder.is_dir()
            else f"is no folder; {alike(folder)}"
        )
        raise UserError(f"{folder} {why}")
    if not index.intact:
        raise UserError(f"{folder / INDEX} is damaged (its checksum does not match); {_REMEDY}")
    width = np.dtype(index.dtype).itemsize
    for number, shard in enumerate(index.shards):
        sizes = shard.tokens * width, shard.documents * 2 * ENDS.itemsize
        for name, expected in zip(names(number), sizes, strict=True):
            path = folder / name
            size = path.stat().st_size if path.is_file() else None
            if size is None:
                raise UserError(f"{path} is missing; {_REMEDY}")
            if size != expected:
                raise UserError(f"{path} has {size:,} bytes instead of {expected:,}; {_REMEDY}")
    return index


def check_content(
    folder: Path, index: Index, numbers: Iterable[int], pieces: int, always: bool = False
) -> None:
    """Checks the hashes, ids and document ends in the files of these shards, except in files that
    passed before and are unchanged since (unless `always`), and stores in the user's cache folder
    which have passed; raises `Changed` or `UserError`.

    Files that have passed are remembered in the user's `cache_folder` by size, time of their last
    change in ns, and inode, and are not read again until one of these differs.

    Args:
      folder: of shards.
      index: its index, see `opened`.
      numbers: of the shards.
      pieces: of the vocabulary; ids are smaller.
      always: read them even if they are remembered.

    Raises:
      Changed: a file is not as it was written.
      UserError: it is, but has ids without a piece, or documents that end before they begin.
    """
    cache = cache_folder()
    name = hashlib.sha256(f"{folder.resolve()} {index.sha256} {pieces}".encode()).hexdigest()
    path = None if cache is None else cache / "shards" / f"{name}.json"
    passed: dict[str, Any] = {}
    if path is not None:
        with contextlib.suppress(OSError, Damaged):
            passed = dict(read(path.read_bytes(), Mapping[str, Any]))  # type: ignore[type-abstract]
    earlier = dict(passed)
    for number in numbers:
        now, states = time.time_ns(), [(folder / file).stat() for file in names(number)]
        marks = [[state.st_size, state.st_mtime_ns, state.st_ino] for state in states]
        if passed.get(str(number)) == marks and not always:
            continue
        written, present = index.shards[number].sha256, hashes(folder, number)
        if written != present:
            if path is not None and passed:
                path.unlink(missing_ok=True)  # it was wrong about this file
            changed = folder / names(number)[written[0] == present[0]]
            raise Changed(
                f"{changed} has changed since it was written (its hash is not that of {INDEX}); put"
                f" back a good copy, or delete {folder} and run its 'prepare' command again"
            )
        _check_values(folder, index, number, pieces)
        if all(state.st_mtime_ns + _SETTLED < now for state in states):
            passed[str(number)] = marks
    if path is not None and passed != earlier:
        with contextlib.suppress(OSError, UserError):  # then they are read again the next time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(passed))


def _check_values(folder: Path, index: Index, number: int, pieces: int) -> None:
    """Raises `UserError` if a shard has an id not below `pieces`, or document ends that do not
    increase within its ids.
    """
    tokens, documents = (folder / name for name in names(number))
    largest = int(mapped(tokens, np.dtype(index.dtype).newbyteorder("<")).max(initial=0))
    if largest >= pieces:
        raise UserError(
            f"{tokens} has the id {largest}, but the vocabulary has the {pieces} ids from 0 on;"
            f" {_REMEDY}"
        )
    ends = mapped(documents, ENDS).reshape(-1, 2)[:, 0].astype(np.int64)
    if (np.diff(ends, prepend=0, append=index.shards[number].tokens + 1) <= 0).any():
        raise UserError(
            f"{documents} is no list of documents that end one after another within the"
            f" {index.shards[number].tokens} ids beside it; {_REMEDY}"
        )


def hashes(folder: Path, number: int) -> tuple[str, str]:
    """Returns the SHA-256 (hex) of the two files of a shard, ids and documents, with "" for a file
    that does not exist.
    """
    digests = []
    for name in names(number):
        try:
            with open(folder / name, "rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except FileNotFoundError:
            digests.append("")
    ids, documents = digests
    return ids, documents


def mapped(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    """Maps a file into memory as a read-only array of `dtype` and returns it; an empty file, which
    cannot be mapped, gives an empty array.
    """
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    try:
        return np.memmap(path, dtype, mode="r").view(np.ndarray)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
