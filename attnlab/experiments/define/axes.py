"""Axes of an experiment: named points, each a set of overrides `{"system.attention.score": "dot",
...}` of a config.

`grid` takes every combination, `zipped` pairs the values of several settings, `rows` names each
point, `cross` joins axes. Values are plain config values; the name of a component replaces it, as
`--config.a.b=value` does.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from attnlab.config.patterns import is_dotted_name, is_pattern
from attnlab.config.tree import frozen, is_plain
from attnlab.errors import UserError

MOST_POINTS = 10_000  # of an axis, and candidates of an experiment
SHOWN = 4  # names, or values, of many
Key = TypeVar("Key")
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Point:
    """One setting of an axis.

    Attributes:
      name: its name in tables: "score=dot, heads=4", or its label.
      overrides: full dotted name to value.
    """

    name: str
    overrides: Mapping[str, Any]


Axis = tuple[Point, ...]


def grid(settings: Mapping[str, Sequence[Any]]) -> Axis:
    """Returns an axis (a tuple of `Point`) with every combination of the settings' values (dotted
    name to values) as a point, the last setting changing fastest.

    Raises:
      UserError: no setting, a setting without values, a key that is no dotted name, a value that no
        config can hold.
    """
    values = _checked(settings, "grid")
    check_count(values, "grid")
    return _named(settings, itertools.product(*values))


def zipped(settings: Mapping[str, Sequence[Any]]) -> Axis:
    """Returns an axis (a tuple of `Point`) whose n-th point sets each dotted name in `settings` to
    the n-th of its values; raises `UserError` if the numbers of values differ.

    Raises:
      UserError: as `grid`, and settings of different lengths.
    """
    values = _checked(settings, "zipped")
    lengths = {key: len(column) for key, column in zip(settings, values, strict=True)}
    if len(set(lengths.values())) > 1:
        raise UserError(
            "zipped: settings of different lengths:"
            f" {', '.join(f'{key!r} has {n}' for key, n in lengths.items())}"
        )
    return _named(settings, zip(*values, strict=True))


def rows(points: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Returns an axis (a tuple of `Point`) with one point for each item of `points`, {label:
    overrides}; overrides may be nested and are flattened to dotted names, and `{}` is the base
    config itself.

    Raises:
      UserError: no row, a row that is no mapping, a key that is no dotted name, a value that no
        config can hold.
    """
    if not isinstance(points, Mapping) or not points:
        raise UserError(
            f"rows: expected {{label: {{key: value}}}} with at least one row, got {points!r}"
        )
    return tuple(
        Point(_label(label), flattened(overrides, f"rows: {label!r}"))
        for label, overrides in points.items()
    )


def cross(*axes: Axis) -> Axis:
    """Returns an axis (a tuple of `Point`) of every combination of one point from each axis,
    overrides united and names joined, the last axis changing fastest; raises `UserError` if two
    axes set the same key, one is empty, or there are too many combinations.

    Raises:
      UserError: two axes set the same key, or one is empty.
    """
    for number, axis in enumerate(axes, start=1):
        if not axis or not all(isinstance(point, Point) for point in axis):
            raise UserError(f"cross: axis {number} is no axis; make it with grid, zipped or rows")
    check_count(axes, "cross")
    return tuple(_joined(points) for points in itertools.product(*axes))


def check_count(parts: Sequence[Sequence[Any]], where: str) -> None:
    """Raises `UserError` if there are more than `MOST_POINTS` combinations of one element of each
    part.
    """
    if (count := math.prod(map(len, parts))) > MOST_POINTS:
        raise UserError(f"{where}: {count:,} combinations; expected at most {MOST_POINTS:,}")


def text(value: Any) -> str:
    """Returns a setting's value as text for the command line: true or false, a string unchanged
    (quoted if it begins with a quote), any other value by `repr`, lists as tuples.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value) if value[:1] in ("'", '"') else value
    return repr(frozen(value))


def overridden(overrides: Mapping[str, Any] | None) -> list[str]:
    """Returns overrides as those of the command line, "a.b=value" each; see `flattened`."""
    values = flattened(overrides or {}, "overrides")
    return [f"{key}={text(value)}" for key, value in values.items()]


def layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a dict that unites the layers (dicts of dotted names and values), where later layers
    win; if any name is a pattern, a name that a later layer sets again moves to the end, since of a
    pattern and a full name the last one counts.
    """
    settings: dict[str, Any] = {}
    patterns = any(is_pattern(key) for layer in layers for key in layer)
    for layer in layers:
        settings = {key: settings[key] for key in settings if not patterns or key not in layer}
        settings |= layer
    return settings


def several(names: Sequence[str]) -> str:
    """Returns the first `SHOWN` names, separated by commas, and how many more there are."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Returns {key: the items of all (key, item) pairs with that key}, keys and items in the order
    of the pairs.
    """
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def flattened(overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns nested overrides as a flat dict with dotted names, {"a": {"b": 1}} as {"a.b": 1};
    raises `UserError`, which begins with `where`, for a bad name or a value that no config can
    hold.

    Raises:
      UserError: not a mapping, a key that is no dotted name, a value that no config can hold.
    """
    if not isinstance(overrides, Mapping):
        raise UserError(f"{where}: expected {{key: value}}, got {overrides!r}")
    flat: dict[str, Any] = {}
    for key, value in overrides.items():
        _check_key(key, where)
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": leaf for name, leaf in flattened(value, where).items()}
        else:
            flat[key] = _plain(key, value, where)
    return flat


def _checked(settings: Mapping[str, Sequence[Any]], where: str) -> list[list[Any]]:
    """Returns the values of each setting as a list, in the order of `settings`, with lists among
    the values as tuples; raises `UserError`, which begins with `where`, for no setting, a bad name,
    no values, a repeated value, or one that no config can hold.
    """
    if not isinstance(settings, Mapping) or not settings:
        raise UserError(
            f"{where}: expected {{key: (value, value, ...)}} with at least one setting, got"
            f" {settings!r}"
        )
    for key, values in settings.items():
        _check_key(key, where)
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise UserError(f"{where}: the values of {key!r} must be a tuple, got {values!r}")
    checked = [[_plain(key, value, where) for value in values] for key, values in settings.items()]
    for key, values in zip(settings, checked, strict=True):
        if not values:
            raise UserError(f"{where}: {key!r} has no values")
        if len({repr(value) for value in values}) < len(values):
            raise UserError(f"{where}: {key!r} has a value twice: {', '.join(map(repr, values))}")
    return checked


def _check_key(key: Any, where: str) -> None:
    """Raises `UserError` unless a key is the dotted name of a setting, or a pattern of such names,
    without "config." before it.
    """
    if not is_dotted_name(key):
        raise UserError(
            f"{where}: {key!r} is not the dotted name of a setting, such as"
            " 'system.attention.score'"
        )
    if key.startswith("config."):
        raise UserError(f"{where}: leave out 'config.', write {key.removeprefix('config.')!r}")


def _plain(key: str, value: Any, where: str) -> Any:
    """Returns the value with lists as tuples; raises `UserError` if a config cannot hold it (a
    mapping, another type, a number that is not finite).
    """
    if isinstance(value, Mapping) or not is_plain(value):
        raise UserError(
            f"{where}: {key!r} is {value!r}, a {type(value).__name__}; use numbers, strings,"
            " True/False, None or tuples"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {key!r} is {value!r}; a finite number is needed")
    return frozen(value)


def _label(label: Any) -> str:
    if not isinstance(label, str) or not label.strip() or not label.isprintable():
        raise UserError(f"rows: {label!r} is no label; use a short text on one line")
    return label.strip()


def _named(settings: Mapping[str, Any], combinations: Iterable[tuple[Any, ...]]) -> Axis:
    """Returns an axis with one point for each tuple in `combinations`, which holds a value for each
    key of `settings`; the point is named "key=value, ..." with keys shortened as far as they stay
    distinct.
    """
    short = short_names(list(settings))

    def name(values: tuple[Any, ...]) -> str:
        return ", ".join(f"{key}={_shown(value)}" for key, value in zip(short, values, strict=True))

    return tuple(
        Point(name(values), dict(zip(settings, values, strict=True))) for values in combinations
    )


def short_names(keys: list[str]) -> list[str]:
    """Returns the shortest endings of dotted keys (of "a.score.name": "score"; equally many parts
    of each, and of a pattern all from its last star on) that are all different.
    """
    parts = [
        re.split(r"\.(?=.*\*)" if "*" in key else r"\.", key.removesuffix(".name")) for key in keys
    ]
    for count in range(1, max(map(len, parts)) + 1):
        names = [".".join(path[-count:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return keys


def _shown(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else text(value)


def _joined(points: tuple[Point, ...]) -> Point:
    """Returns one point with the overrides of several points and their names joined by commas;
    raises `UserError` if two of them set the same key.
    """
    overrides: dict[str, Any] = {}
    for point in points:
        for key in point.overrides:
            if key in overrides:
                raise UserError(f"cross: {key!r} is set by two axes")
        overrides |= point.overrides
    return Point(", ".join(point.name for point in points), overrides)
