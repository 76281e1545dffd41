"""JSON that people may have edited: text to values, and values to the kinds that their reader
counts on. All records are read through here.

A kind is an annotation: bool, int, float, str, None, Any, Literal, unions, `list[X]`, `tuple[X,
...]`, `Mapping[str, X]`, a dataclass (an object with its fields and no others) or a `TypedDict` (an
object with at least its keys). Three are narrower than Python's.

Records have two formats, each with one version number in its head. A *run* is a folder with
`manifest.json`, a *sweep* one with `plan.json`; the version that stands there is that of all files
of the folder. A record without one is of version 1, and a record keeps its version for life: what
goes on with it adds nothing to what it did not keep from the start. What version 1 may lack, and
what is made of that, is a table in docs/report.md.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar

from attnlab.errors import UserError

Natural = Annotated[int, "a whole number from 0"]
Finite = Annotated[float, "a finite number"]
FolderName = Annotated[str, "the name of a folder"]
T = TypeVar("T")

_DEEPEST = 64  # levels of nesting; records have under ten
_LARGEST = 2**64  # beyond any count, seed or time
_NO_LIMIT = int(1e30)  # of a tokenizer's longest text, as transformers writes it
_SHOWN = 40  # characters of a wrong value


class Damaged(ValueError):
    """Not JSON, or not of the wanted kind; the message says in one line what is wrong and where in
    the text.
    """


def _whole(digits: str) -> int:
    """Returns the int of a text of digits; raises Damaged if it is too large to belong in a record."""
    value = int(digits)
    if abs(value) >= _LARGEST and value != _NO_LIMIT:
        raise Damaged(f"{digits[:_SHOWN]}... is larger than any number that belongs here")
    return value


def _finite(digits: str) -> float:
    """Returns the float of a text; raises Damaged if it is not finite."""
    number = float(digits)
    if not math.isfinite(number):
        raise Damaged(f"{digits[:_SHOWN]} is no finite number")
    return number


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the key-value pairs of a JSON object as a dict; raises Damaged if a key occurs twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Damaged(f"the key {twice!r} stands twice in an object")
    return members


_OURS = json.JSONDecoder(parse_int=_whole)
_STRICT = json.JSONDecoder(
    parse_int=_whole, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_members
)


def parsed(text: str | bytes, *, strict: bool = False) -> Any:
    """Parses a JSON text (UTF-8 if bytes) and returns its value; `strict` refuses NaN, Infinity and
    repeated keys and skips a byte order mark; raises Damaged for no JSON, deep nesting, integers
    beyond 2^64 (but the 10^30 by which transformers says "no limit") or half a character.

    Args:
      text: one value.
      strict: somebody else wrote it: a byte order mark is passed over, numbers are finite, and a
        key stands once in an object (of two, Python's parser drops the first).

    Raises:
      Damaged: no JSON, nesting without end, a whole number beyond 2^64, half a character.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig" if strict else "utf-8")
        value = (_STRICT if strict else _OURS).decode(text)
        if "\\" in text:  # an escape may stand for half a character
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise Damaged("it is nested too deeply") from error
    except ValueError as error:  # `Damaged` is one
        raise Damaged(" ".join(str(error).split())) from error
    if text.count("[") + text.count("{") > _DEEPEST and not _is_flatter(value, _DEEPEST):
        raise Damaged("it is nested too deeply")
    return value


def read(text: str | bytes, kind: type[T]) -> T:
    """Parses a JSON text as a value of type `kind`: dataclasses are built at any depth, and lists
    become tuples where it has tuples; raises Damaged if it does not fit.

    Raises:
      Damaged: see `parsed`; or a field is absent, unknown or of another kind.
    """
    return typing.cast(T, fit(parsed(text), kind))


def read_file(
    path: Path, kind: type[T], remedy: str, error: type[UserError] = UserError
) -> T | None:
    """Reads the JSON file `path` and returns its value converted to the type `kind` (see `read`),
    or None if the file does not exist; if it is damaged, raises `error`, whose message ends with
    `remedy`.

    Raises:
      UserError: the file is damaged; `remedy` is the end of the message, `error` its class.
    """
    try:
        return read(path.read_bytes(), kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Damaged as damage:
        raise error(f"{path} is damaged ({damage}): {remedy}") from damage


def fit(value: Any, kind: Any, where: str = "") -> Any:
    """Returns the parsed JSON `value` converted to the type `kind` (an object to a dataclass or
    TypedDict, a list to a tuple); raises Damaged, with its position `where` in the message, if it
    does not fit.
    """
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _fit_one_of(value, kind, where)
    if origin is typing.NotRequired:
        return fit(value, inner[0], where)
    if origin is Annotated:
        return _narrow(fit(value, inner[0], where), kind, where)
    if origin is typing.Literal:
        is_allowed = any(value == allowed and type(value) is type(allowed) for allowed in inner)
        return value if is_allowed else _refuse(value, kind, where)
    if dataclasses.is_dataclass(origin):
        fields = {field.name: _required(field) for field in dataclasses.fields(origin)}
        return origin(**_fit_fields(value, origin, fields, where, allow_unknown=False))  # type: ignore[operator]
    if typing.is_typeddict(origin):
        fields = {name: name in origin.__required_keys__ for name in _hints(origin)}
        return _fit_fields(value, origin, fields, where, allow_unknown=True)
    if origin in (list, tuple) and isinstance(value, list):
        return origin(
            fit(element, inner[0] if inner else Any, f"{where}[{place}]")
            for place, element in enumerate(value)
        )
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {
            key: fit(member, inner[1] if inner else Any, _below(where, key))
            for key, member in value.items()
        }
    return value if _is_plain(value, origin) else _refuse(value, kind, where)


def _fit_fields(
    value: Any, kind: Any, required: Mapping[str, bool], where: str, *, allow_unknown: bool
) -> dict[str, Any]:
    """Returns the members of the JSON object `value` by name, converted to the field types of the
    class `kind`; raises Damaged, with the position `where`, if `value` is no object, a member does
    not fit, a field that is True in `required` is missing or, unless `allow_unknown`, a member is
    no field.
    """
    if not isinstance(value, dict):
        _refuse(value, kind, where)
    for name, needed in required.items():
        if needed and name not in value:
            raise Damaged(f"{_below(where, name)} is missing")
    for name in value:
        if name not in required and not allow_unknown:
            raise Damaged(f"{_below(where, name)} is not known")
    hints = _hints(kind)
    return {
        name: fit(member, hints[name], _below(where, name)) if name in required else member
        for name, member in value.items()
    }


def _fit_one_of(value: Any, kind: Any, where: str) -> Any:
    """Returns the JSON `value`, at the position `where`, converted to the first member of the union
    `kind` that it fits; raises Damaged with the message of the last candidate (see
    `_fits_literals`) if it fits none.
    """
    if value is None and type(None) in typing.get_args(kind):
        return None
    alternatives = [option for option in typing.get_args(kind) if option is not type(None)]
    alternatives = [x for x in alternatives if _fits_literals(value, x)] or alternatives
    for option in alternatives[:-1]:
        try:
            return fit(value, option, where)
        except Damaged:
            continue
    return fit(value, alternatives[-1], where)


def _fits_literals(value: Any, kind: Any) -> bool:
    """Returns False if `kind` is a `TypedDict` in which a field of type `Literal` does not allow
    the text that the JSON object `value` has for it, as {"event": "start"} for Literal["end"], else
    True.
    """
    if not typing.is_typeddict(kind) or not isinstance(value, dict):
        return True
    return all(
        value[name] in typing.get_args(hint)
        for name, hint in _hints(kind).items()
        if typing.get_origin(hint) is typing.Literal and isinstance(value.get(name), str)
    )


def _narrow(value: Any, kind: Any, where: str) -> Any:
    """Returns `value`, which fits the base type, if it also obeys the rule of `kind`: from 0 for
    `Natural`, finite for `Finite`, else the name of a folder; raises Damaged, with the position
    `where`, if not.
    """
    if kind == Natural:
        good = value >= 0
    elif kind == Finite:
        good = math.isfinite(value)
    else:
        plain = value not in ("", ".", "..") and not {"/", "\\", "\0"} & set(value)
        good = plain and len(value.encode()) < 256
    return value if good else _refuse(value, kind, where)


def _is_plain(value: Any, kind: Any) -> bool:
    """Returns whether a value is of the plain JSON type `kind` (int, float, str, bool or None, or
    Any, to which everything belongs); an int counts as a float, a bool not as a number.
    """
    if kind is Any or kind is object:
        return True
    if kind in (None, type(None)):
        return value is None
    accepted: Any = {int: int, float: (int, float), str: str, bool: bool}.get(kind, ())
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))


def _refuse(value: Any, kind: Any, where: str) -> typing.NoReturn:
    text = json.dumps(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    raise Damaged(f"{where or 'the whole of it'} is {text}, expected {_name(kind)}")


def _name(kind: Any) -> str:
    """Returns a type's name for messages, such as "a whole number", "a list" or "an object"."""
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Annotated:
        return str(inner[1])
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin in (list, tuple):
        return "a list"
    if origin in (dict, Mapping) or dataclasses.is_dataclass(origin) or typing.is_typeddict(origin):
        return "an object"
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(
        origin, str(origin)
    )


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _is_flatter(value: Any, levels: int) -> bool:
    """Returns whether lists and objects in a value are nested no deeper than `levels`."""
    if not isinstance(value, list | dict):
        return True
    members = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_flatter(member, levels - 1) for member in members)


RUN, SWEEP = 2, 2
"""The versions that are written now; all from 1 on are read."""


class _Versioned(TypedDict):
    """What is read of a head before anything else."""

    version: NotRequired[Natural]


def versioned(text: str | bytes, newest: int, where: object) -> dict[str, Any]:
    """Parses the JSON object `text` and returns its fields, with "version" 1 if that is absent;
    raises `UserError`, with `where` in the message, unless the version is from 1 to `newest`, and
    `Damaged` if it is no object.

    Raises:
      Damaged: it is no object.
      UserError: the version is none that is read here.
    """
    fields: dict[str, Any] = {"version": 1, **fit(parsed(text), _Versioned)}
    if not 1 <= fields["version"] <= newest:
        raise UserError(
            f"{where} is of version {fields['version']}, and this attnlab reads 1 to {newest}: use"
            " the attnlab that wrote it, or another folder"
        )
    return fields
