"""JSON that somebody else wrote: parsed within bounds, or refused in one line that names the file.

Refused are, beside what is no JSON: NaN, Infinity and numbers that no double holds (1e400), whole
numbers beyond 64 bits, a key that stands twice in an object, half of a surrogate pair ("\\ud83d"
alone), and objects nested deeper than any that people write.
"""

from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.records.json_kinds import Damaged, parsed

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
