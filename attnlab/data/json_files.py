"""JSON files: what somebody else wrote is parsed within bounds, or refused in one line that names the
file, as a whole or line by line, also as a source of pairs of texts; our own files hold their SHA-256,
so that damage is noticed (what a run has learned).

Refused are, beside what is no JSON: NaN, Infinity and numbers that no double holds (1e400), whole
numbers beyond 64 bits, a key that stands twice in an object, half of a surrogate pair ("\\ud83d"
alone), and objects nested deeper than any that people write.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.data.files import SplitFiles, read_lines
from attnlab.errors import UserError, nearest
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import Damaged, parsed, read

_KINDS: dict[type, str] = {dict: "object", list: "list"}


def parse_json(text: str | bytes, where: str) -> Any:
    """Parses a JSON text strictly and returns its value.

    Args:
      text: one JSON value; bytes are UTF-8, with or without a byte order mark.
      where: the file, and the line if there are many, for messages.

    Raises:
      UserError: no JSON, or beyond the bounds above.
    """
    try:
        return parsed(text, strict=True)
    except Damaged as error:
        raise UserError(f"{where}: no JSON that can be used ({error})") from error


def read_json(path: Path, kind: type = dict) -> Any:
    """Reads a JSON file and returns its value; raises `UserError` unless it is of the type `kind`,
    by default an object.

    Raises:
      UserError: unreadable, no JSON, or a value of another kind.
    """
    try:
        value = parse_json(path.read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if not isinstance(value, kind):
        raise UserError(f"{path} holds no JSON {_KINDS[kind]}; put back a good copy")
    return value


@dataclass(frozen=True)
class JsonLines(SplitFiles):
    """One pair for each object of a file, plain, .gz or .xz; white space in texts becomes single
    blanks.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
      source, target: the fields that have the two texts.
    """

    train: str = "train.jsonl"
    valid: str = "valid.jsonl"
    test: str = "test.jsonl"
    source: str = "source"
    target: str = "target"

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Reads the file of `split` and returns the source and target fields of every JSON line as
        a pair, white space as single blanks; skips blank lines, and raises `UserError` for a blank
        text.

        Raises:
          UserError: as for `files.ParallelFiles`; a line that is no JSON object, lacks a field, or
            has something else than a text in it, or a blank one; with file and line.
        """
        path = self.path(split)
        pairs = [
            (text_of(record, self.source, where), text_of(record, self.target, where))
            for where, record in objects_of(path)
        ]
        if not pairs:
            raise UserError(f"{path} holds nothing but blank lines")
        return pairs


def objects_of(
    path: Path, lines: Iterable[str] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (the line's name for error messages, its JSON object) for every line of a file that is
    not blank; raises `UserError` for a line that is no object. `lines` are those of the file where
    they are read already, one after another.
    """
    for number, line in enumerate(read_lines(path) if lines is None else lines, 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, object_of(line, where)


def object_of(line: str, where: str) -> dict[str, Any]:
    """Parses a line as a JSON object and returns it; raises `UserError` if it is none."""
    record = parse_json(line, where)
    if not isinstance(record, dict):
        raise UserError(f"{where}: {type(record).__name__}, expected an object")
    return record


def text_of(record: dict[str, Any], field: str, where: str) -> str:
    """Returns the text in the field of a record, white space as single blanks; raises `UserError`,
    which begins with `where`, if it is missing, blank or no text.
    """
    value = field_of(record, field, where)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: field {field!r} is {value!r}; expected a text")
    return " ".join(value.split())


def field_of(record: Mapping[str, Any], field: str, where: str, kind: str = "field") -> Any:
    """Returns the value of a field of a record, where "a.b" is b within a (None if a is None, a
    list of values if a is a list); raises `UserError`, with `where` and near names and the word
    `kind` for a field, if it is missing.
    """
    value: Any = record
    for part in [field] if field in record else field.split("."):
        if isinstance(value, list) and all(isinstance(inner, Mapping) for inner in value):
            value = [field_of(inner, part, where, kind) for inner in value]
        elif value is not None:
            if not isinstance(value, Mapping) or part not in value:
                raise UserError(f"{where}: no {kind} {field!r}; {nearest(field, record)}")
            value = value[part]
    return value


FORMAT = "attnlab vocabulary 1"  # of files that say one


def write_sealed(path: Path, body: Mapping[str, Any]) -> None:
    """Write JSON with its SHA-256, as `read_sealed` reads it."""
    write_atomic(path, json.dumps({**body, "sha256": digest_of(body)}, ensure_ascii=False))


def digest_of(body: Any) -> str:
    """SHA-256 of a JSON value, independent of how it was laid out."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_sealed(
    path: Path,
    kind: type[Any],
    name: str,
    words: tuple[str, str] = ("is", "its"),
    remedy: str = "put back a good copy",
) -> dict[str, Any]:
    """Reads a JSON file with the fields of `kind` and returns the object without its "sha256" and
    "format"; raises `UserError` if the file cannot be read, does not fit `kind`, is of another
    format, or its "sha256" is not the hash of what is returned.

    Args:
      path: of the file.
      kind: a `TypedDict`.
      name: what an error calls the file, with `words` for one of it or several.
      remedy: the end of the message about damage.

    Raises:
      UserError: it is missing or damaged.
    """
    damaged = f"{name} {words[0]} damaged"
    try:
        body: dict[str, Any] = dict(read(path.read_bytes(), kind))
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}") from error
    except Damaged as error:
        raise UserError(f"{damaged} ({error}); {remedy}") from error
    if body.pop("format", FORMAT) != FORMAT or body.pop("sha256") != digest_of(body):
        raise UserError(f"{damaged} ({words[1]} checksum does not match); {remedy}")
    return body
