"""Text of a command line, read as the value of a setting."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Set

from attnlab.config.annotations import UNSAID
from attnlab.config.annotations import kinds as kinds_of
from attnlab.config.tree import is_plain
from attnlab.errors import UserError


def read_value(text: str, old: object, hint: Callable[[], object], where: str) -> object:
    """The value that `text` means as a replacement of `old`.

    int, float (also "3" and "1e-3"; finite), bool ("true", "false"), str, tuple ("16,32" or "(16,
    32)", its items of the type of the old ones); "None" where the old value is None or the
    annotation allows it.

    Args:
      old: the present value; `dataclasses.MISSING` if there is none yet.
      hint: gives the annotation of the field; asked only when the type of `old` does not settle it.

    Raises:
      UserError: `text` is none of the types allowed, naming the setting, the text and the types.
    """
    same = set() if text == "None" else {type(old)} - {type(None), type(dataclasses.MISSING)}
    for value in _readings(text, old, same):
        return value
    kinds = ({type(old)} | kinds_of(hint())) - {type(dataclasses.MISSING)}
    for value in _readings(text, old, kinds):
        return value
    if kinds <= {type(None), *UNSAID}:
        return _frozen_literal(text)
    names = " or ".join(_type_name(kind, old) for kind in _READERS if kind in kinds)
    present = "" if old is dataclasses.MISSING else f" (now {old!r})"
    raise UserError(f"{where}={text!r}: expected {names}{present}")


def _readings(text: str, old: object, kinds: Set[object]) -> Iterator[object]:
    """Yield `text` read as each type that can read it, the strictest type first."""
    for kind, reader in _READERS.items():
        if kind in kinds:
            with contextlib.suppress(ValueError):
                yield reader(text, old)


def _literal(text: str) -> object:
    """A Python literal, or the text itself where it is none."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _frozen_literal(text: str) -> object:
    """A literal for a setting of unknown type: lists become tuples, a value that a config cannot
    hold stays text.
    """
    value = _literal(text)
    value = tuple(value) if isinstance(value, list) else value
    return value if is_plain(value) else text


def _read_none(text: str, old: object) -> None:
    if text != "None":
        raise ValueError


def _read_bool(text: str, old: object) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _read_int(text: str, old: object) -> int:
    value = _literal(text)
    if type(value) is not int:
        raise ValueError
    return value


def _read_float(text: str, old: object) -> float:
    value = _literal(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not math.isfinite(number := _as_float(value)):
        raise ValueError
    return number


def _as_float(value: float) -> float:
    """The number as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_tuple(text: str, old: object) -> tuple[object, ...]:
    kinds = {type(item) for item in old} if isinstance(old, tuple) else set()
    kind = kinds.pop() if len(kinds) == 1 else None
    value = _literal(text)
    if isinstance(value, str) or (kind is str and text[:1] not in "(["):
        value = tuple(item.strip() for item in text.split(","))
    value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if kind is float:
        value = tuple(_as_float(item) if type(item) is int else item for item in value)
    if not is_plain(value) or any(kind not in (None, type(item)) for item in value):
        raise ValueError
    return value


def _read_str(text: str, old: object) -> str:
    value = _literal(text) if text[:1] in ("'", '"') else text
    return value if isinstance(value, str) else text


_READERS: Mapping[type, Callable[[str, object], object]] = {
    type(None): _read_none,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    tuple: _read_tuple,
    str: _read_str,
}


def _type_name(kind: type, old: object) -> str:
    """The name of a type in messages: "true or false", "tuple of int", "int"."""
    items = (
        {type(item).__name__ for item in old} if kind is tuple and isinstance(old, tuple) else set()
    )
    names = {
        bool: "true or false",
        type(None): "None",
        tuple: f"tuple of {items.pop()}" if len(items) == 1 else "tuple",
    }
    return names.get(kind, kind.__name__)
