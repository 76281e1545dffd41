"""A config, checked as a whole before anything is built or compiled."""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterator, Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict

from attnlab.config.annotations import check_type
from attnlab.config.registry import fields
from attnlab.config.schema import (
    ABOVE_ZERO,
    LONGEST,
    RATE,
    SEED,
    STEPS,
    Component,
    Described,
    Node,
    Range,
    between,
    imported,
    is_node,
    whole,
)
from attnlab.config.tree import Place, complete, is_plain, separate
from attnlab.errors import UserError, nearest

_TINY, _HUGE = (
    2.0**-126,
    float(2**128 - 2**104),
)  # the smallest and the largest normal float32: all is computed in it
DEEPEST = 1024  # what is built one after another: layers, looks, words of an n-gram
EXAMPLES = 10**7  # of a split that is generated
GENERATED = 10_000  # any other whole number of a generator, such as the length of its texts

LIMITS: Mapping[str, Range] = {
    "schedule.peak": ABOVE_ZERO,
    "schedule.warmup": whole(0, STEPS),
    "schedule.hold": whole(0, STEPS),
    "schedule.every": whole(1, STEPS),
}
"""Ranges of fields that components have, by full name."""
_FITTING = {"covers": max, "within": min}
"""Which of its value and the length of the longest sequence fits what measures sequences."""

Kind = TypeVar("Kind", bound=Node)


def validate(
    config: ConfigDict, schema: type[Node] | None = None, named: Container[str] | None = None
) -> Any:
    """The settings of a whole config, checked: nodes, components and their fields, types, choices,
    ranges, and settings that depend on each other.

    Args:
      config: complete, see `attnlab.config.tree.complete`.
      schema: the class that describes it; that of its task unless given.
      named: the full names of the settings that somebody has set, None for all. What components
        measure sequences by and nobody has set becomes what fits the longest sequence.

    Raises:
      UserError: the first thing wrong, with its full name, the value and what would be valid.
    """
    root = Place(config, "", schema or schema_of(config))
    settings = _checked(root)
    longest, fitted = getattr(settings, "longest", None), False
    for place, field, relation in _lengths(root) if longest is not None else ():
        value = place.node[field]
        fitting = _FITTING[relation](value, longest)
        if value == fitting:
            continue
        if named is None or place.name(field) in named:
            raise UserError(
                f"config.{place.name(field)}={value}: sequences have up to"
                f" batch.max_length={longest} tokens; take {longest} or"
                f" {'more' if fitting > value else 'less'}"
            )
        place.node[field], fitted = fitting, True
    return _checked(root) if fitted else settings


def schema_of(config: Mapping[str, Any]) -> type[Node]:
    """The class that describes a config as a whole, by its task.

    Raises:
      UserError: it names no task, or one that is not known, or one whose `schema` is no such class.
    """
    tasks = imported("attnlab.tasks:TASKS")
    name = config.get("task")
    if name is None:
        raise UserError(f"config.task is missing; choose from: {', '.join(tasks.names())}")
    try:
        task = tasks.resolve(name)
    except UserError as error:
        raise UserError(f"config.task: {error}") from error
    schema: type[Node] = task.schema
    if not is_node(schema):
        raise UserError(
            f"config.task={name}: its schema is {schema!r}; expected a class derived from"
            " attnlab.tasks.schemas.Settings"
        )
    return schema


def read(kind: type[Kind], node: Mapping[str, Any] | Node, where: str) -> Kind:
    """The settings of a node, checked; what it leaves out has its default.

    Args:
      kind: the class that describes the node.
      node: its settings.
      where: its dotted name, for messages.

    Raises:
      UserError: an unknown setting (with near names), one that is missing, a value of the wrong
        type or out of its range, or settings that do not go together.
    """
    given = separate(ConfigDict(dict(node.items())))
    place = Place(given, where, kind)
    with given.ignore_type():
        complete(place)
    settings: Kind = _checked(place)
    return settings


def _checked(place: Place) -> Any:
    """A node and all below, checked: every key known, of its type and in its range, nothing
    missing. The settings of a class that describes a node; the node itself of any other.
    """
    for key, value in place.node.items():
        where = f"config.{place.name(key)}"
        _check_representable(value, where)
        _check_known(place, key, where)
        if not isinstance(value, ConfigDict) and not is_plain(value):
            raise UserError(
                f"{where}: a {type(value).__name__} cannot be stored; use numbers, strings,"
                " true/false, None or tuples"
            )
        if key in place.tables:
            _check_part(place, key, value, where)
        elif key in place.described:
            _check_setting(place.described[key], value, where)
        elif place.described:
            hint, within = place.further
            check_type(value, hint, where)
            within.check(value, where)
        elif place.component and key != "name" and not isinstance(value, ConfigDict):
            check_type(value, place.hint(key), where)
            for within in ranges(place, key):
                within.check(value, where)
    _check_missing(place)
    below = {child.where.rpartition(".")[2]: _checked(child) for child in place.children()}
    values = {**place.node, **below}
    if not place.described:
        return Component(values) if place.component else place.node
    own = {key: value for key, value in values.items() if key in place.described}
    others = {key: value for key, value in values.items() if key not in place.described}
    assert place.component is not None
    return place.component(**own, others=others)


def _check_known(place: Place, key: str, where: str) -> None:
    """Raise `UserError` for a key that the node does not have, with the near ones."""
    if place.described:
        if key not in place.described and not place.further:
            raise UserError(f"{where}: no such key; {nearest(key, place.described)}")
    elif place.component and key != "name":
        own = {
            name
            for name, default in fields(place.component).items()
            if name in place.tables or default is not inspect.Parameter.empty
        }
        if key not in own:
            raise UserError(f"{where}: no such key; {nearest(key, own)}")


def _check_part(place: Place, key: str, value: Any, where: str) -> None:
    """Raise `UserError` for a value in the place of a component; None may stand where it is the
    default.
    """
    optional = fields(place.component).get(key, "") is None if place.component else False
    if not isinstance(value, ConfigDict) and not (value is None and optional):
        raise UserError(
            f"{where}={value!r}: expected the name of a {place.tables[key].kind}; choose from:"
            f" {_names(place, key)}"
        )


def _check_setting(setting: Described, value: Any, where: str) -> None:
    """Raise `UserError` for a value that a described setting cannot have."""
    if isinstance(value, ConfigDict) != is_node(setting.hint):
        inside = ", ".join(setting.below)
        wanted = f"a group of settings: {inside}" if inside else "a value, not a group of settings"
        shown = "" if isinstance(value, ConfigDict) else f"={value!r}"
        raise UserError(f"{where}{shown}: expected {wanted}")
    if not is_node(setting.hint):
        check_type(value, setting.hint, where)
        if setting.within:
            setting.within.check(value, where)


def _check_missing(place: Place) -> None:
    """Raise `UserError` for what has no default and is not there."""
    for key, one in place.described.items():
        if key not in place.node:
            choices = f"; choose from: {_names(place, key)}" if key in place.tables else ""
            allowed = f" ({one.allowed})" if one.allowed else ""
            raise UserError(
                f"config.{place.name(key)} is missing: {one.help}{allowed}; set it in the config"
                f" file or by --config.{place.name(key)}{choices}"
            )
    if place.described or not place.component:
        return
    known = fields(place.component)
    missing = [
        key
        for key in place.tables
        if key not in place.node and known.get(key) is inspect.Parameter.empty
    ]
    if missing:
        wanted = " and ".join(
            f"--config.{place.name(key)} (one of: {_names(place, key)})" for key in missing
        )
        raise UserError(
            f"config.{place.where}: {place.node.name} leaves its parts to you; set {wanted}"
        )


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
        raise UserError(
            f"{where}={shown}: expected a whole number below 2^32 ('show' has its bounds)"
        )
    elif isinstance(value, float) and value != 0 and not _TINY <= abs(value) <= _HUGE:
        raise UserError(
            f"{where}={value!r}: expected a number that float32 holds, 0 or {_TINY:.2g} to"
            f" {_HUGE:.2g} in magnitude"
        )


def ranges(place: Place, key: str) -> Iterator[Range]:
    """The ranges of a component's field, the narrowest first: what is named in `LIMITS` is within;
    dropout rates are in [0, 1), seeds in [0, 2^32), and our own whole numbers small enough to build.

    A whole number of a system whose default is at least 1 is a size, and at least 1.
    """
    known = place.defaults
    default, name, root = known.get(key), place.name(key), place.where.split(".")[0]
    if name in LIMITS:
        yield LIMITS[name]
    if "dropout" in key:
        yield RATE
    if key == "epsilon":
        yield between(0, 1)
    if type(default) is not int or ":" in place.node.get("name", ""):
        return
    if key == "seed":
        yield SEED
    elif root == "system":
        deep = key.endswith(("layers", "steps", "hops", "order", "kernel"))
        least, most = 1 if default >= 1 else -LONGEST, DEEPEST if deep else LONGEST
        yield whole(least, most)
    elif root == "data":
        most = (
            LONGEST
            if "examples" not in known
            else EXAMPLES
            if key in ("examples", "valid", "test")
            else GENERATED
        )
        yield whole(-LONGEST, most)  # the sources say the least themselves
    else:
        yield whole(1 - 2**31)


def _lengths(place: Place) -> Iterator[tuple[Place, str, str]]:
    """The fields by which components measure sequences (their `lengths`, field to relation), at a
    node and below.
    """
    relations: Mapping[str, str] = getattr(place.component, "lengths", {})
    for field, relation in relations.items():
        if place.node.get(field) is not None:
            yield place, field, relation
    for child in place.children():
        yield from _lengths(child)
