"""A config, checked as a whole before anything is built or compiled."""

import inspect
from collections.abc import Container, Iterator, Mapping
from typing import TypeVar

from ml_collections import ConfigDict

from attnlab.config.annotations import check_type
from attnlab.config.registry import Table, fields, import_object, settable
from attnlab.config.schema import (
    ABOVE_ZERO,
    LONGEST,
    RATE,
    SEED,
    STEPS,
    Component,
    Node,
    Range,
    Setting,
    between,
    is_node,
    whole,
)
from attnlab.config.tree import ConfigNode, complete, copy_tree, is_plain
from attnlab.errors import UserError, nearest

_TINY = 2.0**-126  # the smallest normal float32: all is computed in it
_HUGE = float(2**128 - 2**104)  # the largest
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
"""The relations of `lengths`: the larger or the smaller of field and longest sequence fits."""

Kind = TypeVar("Kind", bound=Node)


def validate(
    config: ConfigDict, schema: type[Node] | None = None, set_names: Container[str] | None = None
) -> Node:
    """Checks a complete config (keys, types, choices, ranges, settings that depend on each other),
    changes lengths not in `set_names` (None: change none) in place to fit the longest sequence, and
    returns the settings as an object of the schema; raises `UserError`.

    Args:
      config: complete, see `attnlab.config.tree.complete`.
      schema: the class that describes it; that of its task unless given.
      set_names: the full names of the settings that somebody has set, None for all. What components
        measure sequences by and nobody has set becomes what fits the longest sequence.

    Raises:
      UserError: the first thing wrong, with its full name, the value and what would be valid.
    """
    root = ConfigNode(config, "", schema or schema_of(config))
    settings = _settings(root, Node)
    longest = getattr(settings, "longest", None)
    fitted = False
    for node, field, relation in _lengths(root) if longest is not None else ():
        value = node.values[field]
        fitting = _FITTING[relation](value, longest)
        if value == fitting:
            continue
        if set_names is None or node.full_name(field) in set_names:
            raise UserError(
                f"config.{node.full_name(field)}={value}: sequences have up to"
                f" batch.max_length={longest} tokens; take {longest} or"
                f" {'more' if fitting > value else 'less'}"
            )
        node.values[field] = fitting
        fitted = True
    return _settings(root, Node) if fitted else settings


def schema_of(config: Mapping[str, object]) -> type[Node]:
    """Returns the `schema` of the task that a config names: the class that describes the whole
    config; raises `UserError` without a valid one.

    Raises:
      UserError: it names no task, or one that is not known, or one whose `schema` is no such class.
    """
    tasks = import_object("attnlab.tasks:TASKS", Table)
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


def read_settings(kind: type[Kind], values: Mapping[str, object] | Node, where: str) -> Kind:
    """Completes the settings of one node with defaults, checks them, and returns them as an object
    of `kind`; raises `UserError`.

    Args:
      kind: the class that describes the node.
      values: the settings given.
      where: its dotted name, for messages.

    Raises:
      UserError: an unknown setting (with near names), one that is missing, a value of the wrong
        type or out of its range, or settings that do not go together.
    """
    tree = copy_tree(ConfigDict(dict(values.items())))
    node = ConfigNode(tree, where, kind)
    with tree.ignore_type():
        complete(node)
    return _settings(node, kind)


def _settings(node: ConfigNode, kind: type[Kind]) -> Kind:
    settings = _check_node(node)
    assert isinstance(settings, kind)
    return settings


def _check_node(node: ConfigNode) -> object:
    """Checks a node and all below it (every key known, of its type and in its range, none missing),
    else raises `UserError`; returns its settings as an object of its class, as a frozen `Component`
    where it names a component, else as they are.
    """
    for key, value in node.values.items():
        where = f"config.{node.full_name(key)}"
        _check_representable(value, where)
        _check_key_exists(node, key, where)
        if not isinstance(value, ConfigDict) and not is_plain(value):
            raise UserError(
                f"{where}: a {type(value).__name__} cannot be stored; use numbers, strings,"
                " true/false, None or tuples"
            )
        if key in node.tables:
            _check_component(node, key, value, where)
        elif key in node.settings:
            _check_setting(node.settings[key], value, where)
        elif node.further:
            hint, allowed = node.further
            check_type(value, hint, where)
            allowed.check(value, where)
        elif node.component and key != "name" and not isinstance(value, ConfigDict):
            check_type(value, node.hint(key), where)
            for allowed in ranges(node, key):
                allowed.check(value, where)
    _check_missing(node)
    below = {child.path.rpartition(".")[2]: _check_node(child) for child in node.children()}
    values = {**node.values, **below}
    if not node.settings:
        return Component(values) if node.component else node.values
    fields_of_class = {key: value for key, value in values.items() if key in node.settings}
    others = {key: value for key, value in values.items() if key not in node.settings}
    assert node.component is not None
    return node.component(**fields_of_class, others=others)


def _check_key_exists(node: ConfigNode, key: str, where: str) -> None:
    """Raises `UserError`, with similar names, if `key` is no setting or field that the config node
    can have; `where` is its dotted name, for the message.
    """
    if node.settings:
        if key not in node.settings and not node.further:
            raise UserError(f"{where}: no such key; {nearest(key, node.settings)}")
    elif node.component and key != "name":
        allowed = settable(node.component)
        if key not in allowed:
            raise UserError(f"{where}: no such key; {nearest(key, allowed)}")


def _check_component(node: ConfigNode, key: str, value: object, where: str) -> None:
    """Raises `UserError` unless `value`, at a `key` that selects a component, is a group of
    settings (its name is not checked here), or None where None is the default; `where` is its
    dotted name, for the message.
    """
    optional = fields(node.component).get(key, "") is None if node.component else False
    if not isinstance(value, ConfigDict) and not (value is None and optional):
        raise UserError(
            f"{where}={value!r}: expected the name of a {node.tables[key].kind}; choose from:"
            f" {_names(node, key)}"
        )


def _check_setting(setting: Setting, value: object, where: str) -> None:
    """Raises `UserError` unless `value` fits the type and range of a described setting, and is a
    group of settings exactly where one is described.
    """
    if isinstance(value, ConfigDict) != is_node(setting.hint):
        names = ", ".join(setting.below)
        expected = f"a group of settings: {names}" if names else "a value, not a group of settings"
        text = "" if isinstance(value, ConfigDict) else f"={value!r}"
        raise UserError(f"{where}{text}: expected {expected}")
    if not is_node(setting.hint):
        check_type(value, setting.hint, where)
        if setting.within:
            setting.within.check(value, where)


def _check_missing(node: ConfigNode) -> None:
    """Raises `UserError`, with the flag to set it, where a config node lacks a setting, or the
    choice of a component, that has no default.
    """
    for key, setting in node.settings.items():
        if key not in node.values:
            choices = f"; choose from: {_names(node, key)}" if key in node.tables else ""
            allowed = f" ({setting.allowed})" if setting.allowed else ""
            raise UserError(
                f"config.{node.full_name(key)} is missing: {setting.help}{allowed}; set it in the"
                f" config file or by --config.{node.full_name(key)}{choices}"
            )
    if node.settings or not node.component:
        return
    parameters = fields(node.component)
    unset = [key for key in node.tables if key not in node.values]
    missing = [key for key in unset if parameters.get(key) is inspect.Parameter.empty]
    if missing:
        flags = " and ".join(
            f"--config.{node.full_name(key)} (one of: {_names(node, key)})" for key in missing
        )
        raise UserError(
            f"config.{node.path}: {node.values.name} leaves its parts to you; set {flags}"
        )


def _names(node: ConfigNode, key: str) -> str:
    return ", ".join(node.tables[key].names())


def _check_representable(value: object, where: str) -> None:
    """Raises `UserError` for a number that the arrays of a run cannot represent, alone or in a
    tuple: an int of magnitude 2^32 or more, or a float outside the range of float32.
    """
    if isinstance(value, (tuple, list)):
        for item in value:
            _check_representable(item, where)
    elif type(value) is int and abs(value) >= 2**32:
        # Python writes out no longer ones
        text = value if value.bit_length() < 256 else f"a number of {value.bit_length()} bits"
        raise UserError(
            f"{where}={text}: expected a whole number below 2^32 ('show' has its bounds)"
        )
    elif isinstance(value, float) and value != 0 and not _TINY <= abs(value) <= _HUGE:
        raise UserError(
            f"{where}={value!r}: expected a number that float32 holds, 0 or {_TINY:.2g} to"
            f" {_HUGE:.2g} in magnitude"
        )


def ranges(node: ConfigNode, key: str) -> Iterator[Range]:
    """Yields the ranges that a component's field must be in, by its name, its default and the node:
    its entry of `LIMITS`, [0, 1) for dropout, [0, 1] for epsilon, [0, 2^32) for a seed, and bounds
    for any other whole number (none in a user's own component).

    A whole number of a system whose default is at least 1 is a size, and at least 1.
    """
    defaults = node.defaults
    default = defaults.get(key)
    name, root = node.full_name(key), node.path.split(".")[0]
    if name in LIMITS:
        yield LIMITS[name]
    if "dropout" in key:
        yield RATE
    if key == "epsilon":
        yield between(0, 1)
    if type(default) is not int or ":" in node.values.get("name", ""):
        return
    if key == "seed":
        yield SEED
    elif root == "system":
        deep = key.endswith(("layers", "steps", "hops", "order", "kernel"))
        yield whole(min(default, 1) if default >= 0 else -LONGEST, DEEPEST if deep else LONGEST)
    elif root == "data":
        counts = key in ("examples", "valid", "test")
        least = min(default, int(counts)) if default >= 0 else -LONGEST
        yield whole(
            least, (EXAMPLES if counts else GENERATED) if "examples" in defaults else LONGEST
        )
    else:
        yield whole(1 - 2**31)


def _lengths(node: ConfigNode) -> Iterator[tuple[ConfigNode, str, str]]:
    """Yields (node, field, relation) for each field, at a node and below, that a component lists in
    `lengths` and that is not None; `relation`, "covers" or "within", is that of the field to the
    longest sequence.
    """
    relations: Mapping[str, str] = getattr(node.component, "lengths", {})
    for field, relation in relations.items():
        if node.values.get(field) is not None:
            yield node, field, relation
    for child in node.children():
        yield from _lengths(child)
