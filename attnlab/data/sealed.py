"""JSON files of ours that hold their own SHA-256, so that damage is noticed: what a run has learned."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import Damaged, read

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
