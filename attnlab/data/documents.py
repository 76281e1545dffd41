"""Corpora too large for memory, as chunks of about a mebibyte: plain text, JSON lines, Parquet, or a
prepared set of TensorFlow Datasets.

Reading is the same every time, so that a chunk is known by its number. What takes long, from bytes
to texts, is left to `pieces`, which another process may call. A document longer than a chunk comes
in pieces, cut behind the end of a line or else a blank.
"""

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from attnlab.data.files import alike, decoded, unpacked
from attnlab.data.json_files import field_of, object_of
from attnlab.data.readers.records import form_of, records, saved_by_datasets
from attnlab.errors import UserError
from attnlab.records.files import expanded

CHUNK = 2**20  # bytes or characters
_LONGEST = 2**28  # bytes of a record of JSON
_BOM = b"\xef\xbb\xbf"

Unit = Literal["line", "file"]


class BadSource(UserError):
    """Something in the text itself, which has to be mended there."""


class Chunk(NamedTuple):
    """A part of a file.

    Attributes:
      file: the number of the file.
      content: bytes that are whole lines, as a rule, or whole documents.
      line: the number of its first line, from 1.
      last: nothing of the file follows.
      bytes_read: bytes of all files that are read by then.
    """

    file: int
    content: bytes | list[str]
    line: int
    last: bool
    bytes_read: int


@dataclass(frozen=True)
class Corpus:
    """Files whose documents are read in their order.

    Attributes:
      files: as `find` has found them; a folder is a set of TensorFlow Datasets.
      unit: what a document of plain text is: "line" or "file". Other files have records.
      field: of a record, the one that has the text.
      split: of a set of TensorFlow Datasets.
    """

    files: tuple[Path, ...]
    unit: Unit = "line"
    field: str = "text"
    split: str = "train"

    @property
    def sizes(self) -> list[int]:
        """The bytes of each file."""
        return [sum(file.stat().st_size for file in _files_in(path)) for path in self.files]

    def fingerprint(self) -> dict[str, Any]:
        """Reads all files and returns a dict for JSON of the settings (unit, field, split) and "files",
        a list with the name, bytes and SHA-256 (of the hashes of its parts) of each, and, if any is
        CSV or TSV, "table", True.
        """
        files = []
        for path, size in zip(self.files, self.sizes, strict=True):
            digest = hashlib.sha256()
            for part in _files_in(path):
                with open(part, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            files.append({"name": path.name, "bytes": size, "sha256": digest.hexdigest()})
        # earlier versions read the lines of tables
        old = {"table": True} if any(form_of(path) in ("csv", "tsv") for path in self.files) else {}
        return {"unit": self.unit, "field": self.field, "split": self.split, "files": files, **old}

    def chunks(self) -> Iterator[Chunk]:
        """Yields the chunks of all files in order, each with `bytes_read`, the bytes read so far of all
        files together.

        Raises:
          BadSource: a file that is empty or damaged, or has no such field.
          UserError: a file that cannot be read, or a package that is missing.
        """
        earlier_bytes = 0
        for number, size in enumerate(self.sizes):
            for chunk in self.file_chunks(number):
                yield chunk._replace(bytes_read=earlier_bytes + min(chunk.bytes_read, size))
            earlier_bytes += size

    def file_chunks(self, number: int) -> Iterator[Chunk]:
        """Returns an iterator over the chunks of file `number`, read by its form (prepared set,
        records, or lines); `bytes_read` counts bytes of this file only.
        """
        path = self.files[number]
        if form(path) == "tfds":
            return self._record_chunks(number, _tfds_texts(path, self.split, self.field))
        if form(path) == "records":
            return self._record_chunks(number, _record_texts(path, self.field))
        return self._text_chunks(number, path)

    def _record_chunks(self, number: int, texts: Iterable[str]) -> Iterator[Chunk]:
        """Groups the texts of the records of file `number` into chunks of about `CHUNK` characters
        and yields them; raises `BadSource` if there is no record.
        """
        size, total = self.sizes[number], 0
        pending: list[str] = []
        any_record, characters = False, 0
        for text in texts:
            any_record = True
            pending.append(text)
            characters += len(text)
            if characters >= CHUNK:
                total += characters
                yield Chunk(number, pending, 1, False, min(total, size))
                pending, characters = [], 0
        if not any_record:
            raise BadSource(f"{self.files[number]} has no records")
        yield Chunk(number, pending, 1, True, size)

    def _text_chunks(self, number: int, path: Path) -> Iterator[Chunk]:
        """Yields the bytes of a text or JSON file, unpacked, as chunks cut at line ends where
        possible; raises `BadSource` if the file is empty.
        """
        line, records = 1, form(path) == "json"
        with unpacked(path, BadSource) as (stream, position):
            pending: bytes | None = None
            for block in _blocks(stream, path, records):
                if pending is not None:
                    yield Chunk(number, pending, line, False, position())
                    line += pending.count(b"\n")
                pending = block
            if not pending:
                raise BadSource(f"{path} is empty")
            yield Chunk(number, pending, line, True, position())


def find(patterns: Sequence[str]) -> tuple[Path, ...]:
    """Returns the paths of the files that the paths and glob patterns in `patterns` match, in their
    order (matches of a pattern sorted, a folder that `datasets` saved as its files); raises
    `UserError` for a pattern without a match, another folder that is no TFDS set, or a file twice.

    Raises:
      UserError: nothing is named so, a folder that is no prepared set, or a file named twice.
    """
    paths: list[Path] = []
    for pattern in patterns:
        path = expanded(pattern)
        if (path / "state.json").is_file():  # what `datasets` of Hugging Face has saved
            paths += saved_by_datasets(path)
            continue
        if os.path.exists(path):
            paths.append(path)
            continue
        matching = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        if not matching:
            raise UserError(f"--from={pattern}: there is no such file; {alike(path)}")
        paths += [match for match in matching if match.is_file()]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UserError(f"--from names {path} twice; name each file once")
        if path.is_dir() and not (path / "dataset_info.json").is_file():
            raise UserError(
                f"--from={path} is a folder, but no set of TensorFlow Datasets (it has no"
                f" dataset_info.json); name the files in it, --from='{path}/*.txt'"
            )
    return tuple(paths)


def form(path: Path) -> Literal["plain", "json", "records", "tfds"]:
    """Returns the form of a file: "tfds" for a folder, else by its file name "json" or "records"
    (CSV, TSV, Parquet, Arrow), and "plain" for any other.
    """
    if path.is_dir():
        return "tfds"
    kind = form_of(path)
    return "json" if kind == "json" else "records" if kind else "plain"


def pieces(corpus: Corpus, chunk: Chunk) -> tuple[list[tuple[str, bool]], int]:
    """Decodes a chunk of a corpus into its documents, each as (text, whether the document ends
    here), and returns with them the number of records skipped because their text is blank or null.

    A line of plain text has no carriage return at its ends; a blank one is a document of nothing
    but its end, as with the source `text`.

    Raises:
      BadSource: text that is not UTF-8, a record that is no JSON or has no such field.
    """
    path = corpus.files[chunk.file]
    if isinstance(chunk.content, list):
        documents = [(text, True) for text in chunk.content if text.strip()]
        return documents, len(chunk.content) - len(documents)
    content = chunk.content.removeprefix(_BOM) if chunk.line == 1 else chunk.content
    text = decoded(content, path, chunk.line, BadSource)
    if form(path) == "json":
        return _parsed(text, path, chunk.line, corpus.field)
    if corpus.unit == "file":
        return [(text, chunk.last)], 0
    lines = text.split("\n")
    ends = chunk.last
    if not lines[-1]:
        lines.pop()
        ends = True
    return [
        (line.strip("\r"), ends or number < len(lines)) for number, line in enumerate(lines, 1)
    ], 0


def sample(corpus: Corpus, size: int) -> Iterator[str]:
    """Yields texts of about `size` bytes in all, from each file in proportion to its size, from
    chunks spread evenly over it; all texts if there are fewer.
    """
    total = sum(corpus.sizes)
    for number, file_size in enumerate(corpus.sizes):
        remaining = size if file_size == total else max(1, size * file_size // max(1, total))
        stride = max(1, file_size // remaining)
        for index, chunk in enumerate(corpus.file_chunks(number)):
            if index % stride:
                continue
            for text, _ in pieces(corpus, chunk)[0]:
                yield text
            texts = chunk.content if isinstance(chunk.content, list) else [chunk.content]
            remaining -= sum(map(len, texts))
            if remaining <= 0:
                break


def _files_in(path: Path) -> list[Path]:
    """A file, or the files of a folder."""
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]


def _blocks(stream: BinaryIO, path: Path, records: bool) -> Iterator[bytes]:
    """Yields the bytes of a stream in blocks of about `CHUNK` bytes that end at line ends; cuts a
    longer line, or, if lines are `records`, reads on to its end and raises `BadSource` above 256
    MiB.
    """
    pending = b""
    while block := stream.read(CHUNK):
        pending += block
        end = _cut_position(pending, records)
        if end:
            yield pending[:end]
            pending = pending[end:]
        elif len(pending) > _LONGEST:
            raise BadSource(f"{path}: a record of more than {_LONGEST // 2**20} MiB; is it JSONL?")
    if pending:
        yield pending


def _cut_position(block: bytes, records: bool) -> int:
    """Returns at how many bytes to cut a block of text: behind its last line end, or else, unless
    its lines are `records`, behind its last blank or whole character; 0 if there is none.
    """
    end = block.rfind(b"\n") + 1
    if end or records:
        return end
    end = block.rfind(b" ") + 1
    if end:
        return end
    end = len(block)
    while end and block[end - 1] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return end - 1 if end and block[end - 1] >= 0xC0 else len(block)


def _parsed(text: str, path: Path, first: int, field: str) -> tuple[list[tuple[str, bool]], int]:
    """Returns the text in `field` of each line of JSON, as a list of (text, True), and the number
    of lines skipped because this text is null or blank; raises `BadSource` with the number of the
    line, counted from `first`.
    """
    documents, skipped = [], 0
    for number, line in enumerate(text.split("\n"), first):
        if not line.strip():
            continue
        try:
            where = f"{path}, line {number}"
            value = field_of(object_of(line, where), field, where)
        except UserError as error:
            raise BadSource(str(error)) from error
        if value is not None and not isinstance(value, str):
            raise BadSource(f"{where}: field {field!r} is {type(value).__name__}, not a text")
        if value is None or not value.strip():
            skipped += 1
        else:
            documents.append((value, True))
    return documents, skipped


def _record_texts(path: Path, field: str) -> Iterator[str]:
    """Yields the texts in a column of a file of records, "" for none; raises `BadSource` if its
    content is wrong.
    """
    try:
        for where, values in records(path, [field]):
            if not isinstance(text := values[field] or "", str):
                raise UserError(f"{where}: field {field!r} is {type(text).__name__}, not a text")
            yield text
    except UserError as error:
        if getattr(error.__cause__, "errno", None):  # the file may come back
            raise
        raise BadSource(str(error)) from error


def _tfds_texts(path: Path, split: str, field: str) -> Iterator[str]:
    """Yields the texts in the feature `field` of a split of a prepared set; raises `BadSource`,
    whose message names command flags instead of config fields.
    """
    from attnlab.data.tfds import Tfds

    try:
        yield from Tfds(directory=str(path), train=split, source=field).stream("train")
    except UserError as error:
        message = str(error).replace("config.data.source", "--field")
        raise BadSource(message.replace("config.data.train", "--split")) from error
