"""Pairs of texts as JSON lines: an object in every line, two of whose fields are the texts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.data.files import SplitFiles, read_lines
from attnlab.data.readers.json_text import parse_json
from attnlab.errors import UserError, nearest


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
