"""Values of a config: read from command-line text, and checked as a whole before anything is built
or compiled.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from attnlab.config.registry import Table, check_type, fields
from attnlab.config.tree import Place, flat, is_plain
from attnlab.errors import UserError, nearest

CHOICES: Mapping[str, tuple[str, ...]] = {
    "vocabulary.kind": ("bpe", "word", "spaced", "char"),
    "vocabulary.target_kind": ("", "bpe", "word", "spaced", "char"),
    "batch.unit": ("sentences", "tokens"),
    "batch.texts": ("joined", "in_turn", "apart"),
    "training.per": ("token", "sentence"),
    "training.output_bias": ("unigram", "zeros"),
    "training.compute": ("float32", "bfloat16"),
    "parallel.backend": ("auto", "pmap", "mesh"),
}
"""Plain enumerations outside the components; inside them a field's `typing.Literal` says the same."""

Limit = tuple[str, Callable[[Any], bool]]

_MOST = 2**31 - 1  # what an int32 holds
_TINY, _HUGE = (
    2.0**-126,
    float(2**128 - 2**104),
)  # the smallest and the largest normal float32: all is computed in it
STEPS = 10**9
LONGEST = 2**20  # tokens of a sequence, and the size of any part of a system
DEEPEST = 1024  # what is built one after another: layers, looks, words of an n-gram
POSITIONS = 2**28  # of a batch, rows x width: 1 GiB of token ids
EXAMPLES = 10**7  # of a split that is generated
GENERATED = 10_000  # any other whole number of a generator, such as the length of its texts


def _whole(least: int, most: int = _MOST) -> Limit:
    """A whole number between two bounds, both included; the upper one is named where it is
    anybody's choice.
    """
    text = f"a whole number of at least {least}" + (
        f" and at most {most:,}" if most < _MOST or least == 0 else ""
    )
    return text, lambda x: isinstance(x, int) and least <= x <= most


_COUNT: Limit = _whole(1)
_AT_LEAST_ZERO: Limit = ("a number of at least 0", lambda x: 0 <= x < math.inf)
_POSITIVE: Limit = ("a number above 0", lambda x: 0 < x < math.inf)
_RATE: Limit = ("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
_SEED: Limit = _whole(0, 2**32 - 1)

LIMITS: Mapping[str, Limit] = {
    "seed": _SEED,
    "vocabulary.size": _whole(1, 10**7),
    "vocabulary.min_frequency": _COUNT,
    "batch.size": _whole(1, 2**24),
    "batch.max_length": _whole(1, LONGEST),
    "schedule.peak": _POSITIVE,
    "schedule.warmup": _whole(0, STEPS),
    "schedule.hold": _whole(0, STEPS),
    "schedule.every": _whole(1, STEPS),
    "training.steps": _whole(1, STEPS),
    "training.accumulate": _whole(1, 2**16),
    "training.clip": _AT_LEAST_ZERO,
    "training.label_smoothing": _RATE,
    "training.ema": _RATE,
    "training.log_every": _COUNT,
    "training.evaluate_every": _whole(0),
    "checkpoint.every": _whole(0),
    "checkpoint.keep": _COUNT,
    "parallel.devices": _whole(0, 2**16),
}
"""Ranges by full name; None always passes (a setting that is off). Sizes and rates of components are in `_check_range`.

The upper bounds are far above what anybody trains, and below what fills a machine before it can say so."""


def validate(config: ConfigDict, tables: Mapping[str, Table] | None = None) -> None:
    """Checks a whole config: components and their fields, types, choices, ranges, and settings that
    depend on each other.

    Raises:
      UserError: the first thing wrong, with its full name, the value and what would be valid.
    """
    root = Place.root(config, tables)
    _check_place(root)
    values = flat(config)
    for name, choices in CHOICES.items():
        if name in values and values[name] not in choices:
            raise UserError(
                f"config.{name}={values[name]!r}; {nearest(str(values[name]), choices)}"
            )
    for name, limit in LIMITS.items():
        if name in values:
            _check_limit(name, values[name], limit)
    for name in values:
        if name.startswith("auxiliary."):
            _check_limit(name, values[name], _AT_LEAST_ZERO)
    _check_buckets(values)
    _check_positions(values)
    forgets = values.get("batch.texts", "apart") == "apart" or values.get("system.carry") == "state"
    if (
        "batch.max_length" in values and forgets
    ):  # what is read in pieces and remembered has no longest sequence
        _check_lengths(root, values["batch.max_length"])
    if "decoding" in config:
        from attnlab.decoding.settings import validate as validate_decoding

        validate_decoding(config.decoding)


def read_value(text: str, old: Any, hint: Callable[[], Any], where: str) -> Any:
    """The value that `text` means in the place of `old`.

    int, float (also "3" and "1e-3"; finite), bool ("true", "false"), str, tuple ("16,32" or "(16,
    32)", its items of the type of the old ones); "None" where the old value is None or the
    annotation allows it.

    Args:
      hint: gives the annotation of the field; asked only when the type of `old` does not settle it.

    Raises:
      UserError: `text` is none of the types allowed, naming the place, the text and the types.
    """
    same = set() if text == "None" else {type(old)} - {type(None)}
    for value in _readings(text, old, same):
        return value
    kinds = {type(old)} | _kinds(hint())
    for value in _readings(text, old, kinds):
        return value
    if kinds <= {type(None), Any}:
        return _frozen_literal(text)
    names = " or ".join(_spoken(kind, old) for kind in _READERS if kind in kinds)
    raise UserError(f"{where}={text!r}: expected {names} (now {old!r})")


def _readings(text: str, old: Any, kinds: set[Any]) -> Iterator[Any]:
    """What `text` means as each of the types that can read it, the strictest type first."""
    for kind, reader in _READERS.items():
        if kind in kinds:
            with contextlib.suppress(ValueError):
                yield reader(text, old)


def _literal(text: str) -> Any:
    """A Python literal, or the text itself where it is none."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _frozen_literal(text: str) -> Any:
    """A literal for a place of unknown type: lists become tuples, what a config cannot hold
    stays text.
    """
    value = _literal(text)
    value = tuple(value) if isinstance(value, list) else value
    return value if is_plain(value) else text


def _read_none(text: str, old: Any) -> None:
    if text != "None":
        raise ValueError


def _read_bool(text: str, old: Any) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _read_int(text: str, old: Any) -> int:
    value = _literal(text)
    if type(value) is not int:
        raise ValueError
    return value


def _read_float(text: str, old: Any) -> float:
    value = _literal(text)
    if type(value) not in (int, float) or not math.isfinite(number := _as_float(value)):
        raise ValueError
    return number


def _as_float(value: float) -> float:
    """The number as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_tuple(text: str, old: Any) -> tuple[Any, ...]:
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


def _read_str(text: str, old: Any) -> str:
    value = _literal(text) if text[:1] in ("'", '"') else text
    return value if isinstance(value, str) else text


_READERS: Mapping[type, Callable[[str, Any], Any]] = {
    type(None): _read_none,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    tuple: _read_tuple,
    str: _read_str,
}


def _kinds(hint: Any) -> set[Any]:
    """The classes an annotation allows: those of a union, of a Literal's values, the origin of a
    generic.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(_kinds, typing.get_args(hint)))
    if origin is typing.Literal:
        return {type(value) for value in typing.get_args(hint)}
    return {origin or hint}


def _spoken(kind: type, old: Any) -> str:
    """How a message calls a type: "true or false", "tuple of int", "int"."""
    items = (
        {type(item).__name__ for item in old} if kind is tuple and isinstance(old, tuple) else set()
    )
    names = {
        bool: "true or false",
        type(None): "None",
        tuple: f"tuple of {items.pop()}" if len(items) == 1 else "tuple",
    }
    return names.get(kind, kind.__name__)


def _check_place(place: Place) -> None:
    """Checks a node and all below: every field known, of its type and in its range, every part
    there.
    """
    known = fields(place.component) if place.component else {}
    own = {
        key
        for key, default in known.items()
        if key in place.tables or default is not inspect.Parameter.empty
    }
    for key, value in place.node.items():
        where = f"config.{place.name(key)}"
        _check_representable(value, where)
        if place.component and key != "name" and key not in own:
            raise UserError(f"{where}: no such key; {nearest(key, own)}")
        if not isinstance(value, ConfigDict) and not is_plain(value):
            raise UserError(
                f"{where}: a {type(value).__name__} cannot be stored; use numbers, strings,"
                " true/false, None or tuples"
            )
        if (
            key in place.tables
            and not isinstance(value, ConfigDict)
            and not (value is None and known.get(key, "") is None)
        ):
            raise UserError(
                f"{where}={value!r}: expected the name of a {place.tables[key].kind}; choose from:"
                f" {_names(place, key)}"
            )
        if (
            place.component
            and key != "name"
            and key not in place.tables
            and not isinstance(value, ConfigDict)
        ):
            check_type(value, place.hint(key), where)
            _check_range(place, key, value)
    if missing := [
        key
        for key in place.tables
        if key not in place.node and known.get(key) is inspect.Parameter.empty
    ]:
        wanted = " and ".join(
            f"--config.{place.name(key)} (one of: {_names(place, key)})" for key in missing
        )
        raise UserError(
            f"config.{place.where}: {place.node.name} leaves its parts to you; set {wanted}"
        )
    for child in place.children():
        _check_place(child)


def _names(place: Place, key: str) -> str:
    return ", ".join(place.tables[key].names())


def _check_representable(value: Any, where: str) -> None:
    """Raise `UserError` for a number that the arrays of a run cannot hold, alone or in a tuple: an
    int beyond 32 bits, no float32.
    """
    if isinstance(value, (tuple, list)):
        for item in value:
            _check_representable(item, where)
    elif type(value) is int and abs(value) >= 2**32:
        shown = (
            value if value.bit_length() < 256 else f"a number of {value.bit_length()} bits"
        )  # Python writes out no longer ones
        raise UserError(f"{where}={shown}: expected a whole number below 2^32")
    elif isinstance(value, float) and value != 0 and not _TINY <= abs(value) <= _HUGE:
        raise UserError(
            f"{where}={value!r}: expected a number that float32 holds, 0 or {_TINY:.2g} to"
            f" {_HUGE:.2g} in magnitude"
        )


def _check_range(place: Place, key: str, value: Any) -> None:
    """Dropout rates are in [0, 1), seeds in [0, 2^32), and our own whole numbers small enough to
    build.

    A whole number of a system whose default is at least 1 is a size, and at least 1.
    """
    known = place.defaults
    default, name, root = known.get(key), place.name(key), place.where.split(".")[0]
    if "dropout" in key:
        _check_limit(name, value, _RATE)
    if type(default) is not int or ":" in place.node.get("name", ""):
        return
    if key == "seed":
        _check_limit(name, value, _SEED)
    elif root == "system":
        deep = key.endswith(("layers", "steps", "hops", "order", "kernel"))
        _check_limit(
            name, value, _whole(1 if default >= 1 else -LONGEST, DEEPEST if deep else LONGEST)
        )
    elif root == "data":
        most = (
            LONGEST
            if "examples" not in known
            else EXAMPLES
            if key in ("examples", "valid", "test")
            else GENERATED
        )
        _check_limit(name, value, _whole(-LONGEST, most))  # the sources say the least themselves
    else:
        _check_limit(name, value, _whole(-_MOST))


def _check_limit(name: str, value: Any, limit: Limit) -> None:
    """Raises `UserError` unless the value is None or within the limit."""
    text, holds = limit
    if value is not None and (
        not isinstance(value, (int, float)) or isinstance(value, bool) or not holds(value)
    ):
        raise UserError(f"config.{name}={value!r}: expected {text}")


def _check_buckets(values: Mapping[str, Any]) -> None:
    """The bucket lengths are whole numbers, at least 1, each longer than the one before."""
    buckets = values.get("batch.buckets", (1,))
    counts = (
        isinstance(buckets, tuple)
        and buckets
        and all(type(length) is int and 1 <= length <= LONGEST for length in buckets)
    )
    if not counts or list(buckets) != sorted(set(buckets)):
        raise UserError(
            f"config.batch.buckets={buckets!r}: expected increasing whole numbers of at least 1,"
            " such as 16,32,64"
        )


def _check_positions(values: Mapping[str, Any]) -> None:
    """A batch fits into the memory of a machine: so many rows, of the longest sequences."""
    size, longest = values.get("batch.size", 1), values.get("batch.max_length", 1)
    least = (
        values.get("training.accumulate", 1) * longest
    )  # a row for each part of an accumulated batch
    tokens = max(size, least) if values.get("batch.unit") == "tokens" else size * longest
    if tokens > POSITIONS:
        what = (
            f"config.batch.size={size} {values.get('batch.unit', 'sentences')} of up to"
            f" batch.max_length={longest} tokens"
        )
        raise UserError(
            f"{what} are {tokens:,} positions in a batch; expected at most {POSITIONS:,}"
        )


def _check_lengths(place: Place, most: int) -> None:
    """What a component measures sequences by (its `lengths`, field to relation) covers the longest
    of them, or is within it.
    """
    for field, relation in getattr(place.component, "lengths", {}).items():
        value = place.node.get(field)
        longest = f"sequences have up to batch.max_length={most} tokens"
        if value is not None and relation == "covers" and value < most:
            raise UserError(f"config.{place.name(field)}={value}: {longest}; take {most} or more")
        if value is not None and relation == "within" and value > most:
            raise UserError(f"config.{place.name(field)}={value}: {longest}; take {most} or less")
    for child in place.children():
        _check_lengths(child, most)
