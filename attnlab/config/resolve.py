"""Configs: a Python file and `--config.a.b=value` overrides go in, settings come out: one complete
and checked object of the class that describes the config.

They say everything a run depends on: what file and overrides leave out is filled in with the
defaults of the nodes (`attnlab.config.schema`) and of components, nodes with a `name` (`registry`).
A string assigned to a component's node, or to its name, puts another component in its place; any
other text of an override is read by the type of its setting. `off_value` tries which text takes out
of a model, or of its training, what a setting puts in.
"""

import ast
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, overload

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from attnlab.config import files
from attnlab.config.annotations import UNSAID
from attnlab.config.annotations import kinds as kinds_of
from attnlab.config.checks import Kind, schema_of, validate
from attnlab.config.files import find_file, fitting_warmup, note_kept_warmup, read_config_file
from attnlab.config.patterns import covers, hits, is_pattern, key_hint
from attnlab.config.registry import fields
from attnlab.config.schema import Node
from attnlab.config.tree import ConfigNode, complete, copy_tree, flat, from_dict, is_plain, to_dict
from attnlab.errors import UserError, note

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings


@overload
def load(path_and_argument: str, overrides: Sequence[str] = ()) -> "Settings": ...
@overload
def load(path_and_argument: str, overrides: Sequence[str], schema: type[Kind]) -> Kind: ...
def load(
    path_and_argument: str, overrides: Sequence[str] = (), schema: type[Node] | None = None
) -> Node:
    """Reads a config file, or the stored config of a run, completes it with defaults, applies
    overrides, checks it and returns the settings as an object of the schema; raises `UserError`.

    Args:
      path_and_argument: "configs/translation.py:rnnsearch", see `files.read_config_file`.
      overrides: "a.b=value" each, the text after `--config.` on the command line.
      schema: the class that describes the config; that of its task unless given.

    Raises:
      UserError: what `read_config_file` and `prepare` raise.
    """
    config = read_config_file(path_and_argument)
    try:
        settings = prepare(config, overrides, schema) if schema else prepare(config, overrides)
    except RequiredValueError as error:
        raise UserError(
            f"{path_and_argument.partition(':')[0]}: a required placeholder has no value; give it a"
            " default in the file"
        ) from error
    except UserError as error:
        raise UserError(
            f"{error}{files.other_config(path_and_argument, config, overrides)}"
        ) from error
    if find_file(path_and_argument.partition(":")[0], "config file").suffix == ".json":
        now = flat(from_dict(to_dict(settings)))
        note_kept_warmup(path_and_argument, flat(config), now, overrides)
    return settings


@overload
def prepare(config: Mapping[str, object] | Node, overrides: Sequence[str] = ()) -> "Settings": ...
@overload
def prepare(
    config: Mapping[str, object] | Node, overrides: Sequence[str], schema: type[Kind]
) -> Kind: ...
def prepare(
    config: Mapping[str, object] | Node,
    overrides: Sequence[str] = (),
    schema: type[Node] | None = None,
) -> Node:
    """Completes a copy of a config with defaults, applies overrides, checks it and returns the
    settings as an object of the schema; notes to the user what patterns set and a warm-up that it
    shortens; raises `UserError`.

    The task comes first, since it decides which settings there are. Then component replacements
    (`system.attention=multihead`), outermost first, whatever their order in `overrides`; then all
    others in the order given. Naming the component that already stands there changes nothing. A
    name with stars stands for several (`patterns`), and is read once full names have replaced
    components.

    Args:
      config: as a file has it, as it was stored (`tree.to_dict`), or settings.
      overrides, schema: see `load`.

    Returns:
      An object of the schema; the config given stays as it is.

    Raises:
      UserError: a misspelt or missing key (with the near full names), a value of the wrong type, an
        unknown name, a bad range.
    """
    tree = copy_tree(config) if isinstance(config, ConfigDict) else from_dict(to_dict(config))
    with tree.ignore_type():
        set_names = set(flat(tree))
        for name, task in map(_split, overrides):
            if name == ["task"]:
                tree.task = task
        root = ConfigNode(tree, "", schema or schema_of(tree))
        complete(root)
        full = _by_full_names(root, overrides)
        given_names = {name.partition("=")[0] for names in full.values() for name in names}
        file_values = flat(tree)
        _override(root, [_split(name) for text in overrides for name in full[text]])
        if (warmup := fitting_warmup(file_values, flat(tree), given_names)) is not None:
            tree.schedule.warmup = warmup
        settings = validate(tree, schema or schema_of(tree), set_names | given_names)
    for text, names in full.items():
        if names != [text]:
            note(f"{text} sets {', '.join(name.partition('=')[0] for name in names)}")
    return settings


def _by_full_names(root: ConfigNode, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Returns, for each override "name=value", the overrides with full names that it stands for:
    itself, or for a pattern an override for each setting that matches. Patterns see components that
    other overrides name, on a copy of the tree: of components full names first, of other settings
    what stands there in the end.
    """
    full = {text: [text] for text in overrides if not is_pattern(text.partition("=")[0])}
    patterns = [text for text in overrides if text not in full]
    if not patterns:
        return full
    root = dataclasses.replace(root, values=copy_tree(root.values))
    with root.values.ignore_type():
        _replace_all(root, map(_split, full))
        for components in (True, False):
            for text in patterns:
                name, _, value = text.partition("=")
                if text in full or not (names := hits(root, name, components)):
                    continue
                if components:  # of two within each other the inner one goes with the outer
                    names = [n for n in names if _replace_all(root, [(n.split("."), value)])]
                full[text] = [f"{name}={value}" for name in names]
            _replace_all(root, [_split(name) for text in overrides for name in full.get(text, ())])
    return full


def as_stored(config: Kind, tree: Mapping[str, object], chosen: Iterable[str] = ()) -> Kind:
    """Returns the settings `config`, but those that the stored config `tree` does not have get the
    values that held when it was stored (`tree.OLDER`), unless an override in `chosen` ("a.b=value")
    sets them.
    """
    fixed = [*flat(tree), *(override.partition("=")[0] for override in chosen)]
    current, older = flat(config), flat(from_dict(tree))
    newer = {
        name: value
        for name, value in older.items()
        if name in current and not any(covers(pattern, name) for pattern in fixed)
    }
    if not newer:
        return config
    updated = from_dict(to_dict(config))
    updated.update_from_flattened_dict(newer)
    return prepare(updated, (), type(config))


def _split(text: str) -> tuple[list[str], str]:
    """Splits the override "a.b=value" into (["a", "b"], "value"); raises `UserError` for a text
    without an equals sign.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"config.{name}: no value given, write --config.{name}=VALUE")
    return name.split("."), value


def _override(root: ConfigNode, overrides: Sequence[tuple[list[str], str]]) -> None:
    """Applies overrides to the tree in place: replacements of components first, outermost first,
    then plain values in the order given.
    """
    slots = _replace_all(root, overrides)
    for keys, text in overrides:
        if _slot(keys) not in slots:
            _assign(root, keys, text)


def _slot(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(keys[:-1] if keys[-1] == "name" and len(keys) > 1 else keys)


def _replace_all(
    root: ConfigNode, overrides: Iterable[tuple[list[str], str]]
) -> set[tuple[str, ...]]:
    """Puts each component that an override (keys of its dotted name, text) names into the tree
    below `root`, outermost first, and returns the set of their dotted names, each as a tuple of
    keys; leaves other overrides aside.
    """
    replaced = set()
    last = {_slot(keys): text for keys, text in overrides}
    for *path, key in sorted(last, key=len):
        parent = _walk(root, path)
        if parent is not None and key in parent.tables:
            _replace(parent, key, last[*path, key])
            replaced.add((*path, key))
    return replaced


def _walk(root: ConfigNode, keys: Iterable[str]) -> ConfigNode | None:
    """Returns the node that `keys` lead to from `root`, or None if a key leads to no node."""
    node: ConfigNode | None = root
    for key in keys:
        node = node.child(key) if node else None
    return node


def _replace(parent: ConfigNode, key: str, name: str) -> None:
    """Puts the component `name` with its own defaults at `key` of the node `parent` (None for "None"
    where optional); changes nothing if that component is there already.
    """
    old = parent.values.get(key)
    if isinstance(old, ConfigDict) and old.get("name") == name:
        return
    optional = parent.component is not None and fields(parent.component)[key] is None
    parent.values[key] = None if name == "None" and optional else {"name": name}
    child = parent.child(key)
    if child is not None:
        complete(child)


def _assign(root: ConfigNode, keys: list[str], text: str) -> None:
    """Sets the value at the dotted path `keys` to `text`, parsed by the type of the value it
    replaces, else by the setting's annotation; raises `UserError` for an unknown key, a group of
    settings or an unfit text.
    """
    dotted = ".".join(keys)
    *path, key = keys
    parent = _walk(root, path)
    if parent is None or key not in {*parent.values, *parent.settings}:
        raise UserError(f"config.{dotted}: no such key; {key_hint(root, keys)}")
    old = parent.values.get(key, dataclasses.MISSING)
    if isinstance(old, ConfigDict):
        names = ", ".join(f"{dotted}.{name}" for name in old)
        raise UserError(f"config.{dotted} is a group of settings, not a value; set one of: {names}")
    parent.values[key] = read_value(text, old, lambda: parent.hint(key), f"config.{dotted}")


def read_value(text: str, old: object, hint: Callable[[], object], where: str) -> object:
    """Parses `text` as a value of the type of `old`, which it replaces, else of a type that the
    annotation from `hint()` allows, else, where neither tells a type, as a Python literal or the
    text itself; raises `UserError`, which names the setting `where`, if no type fits.

    int, float (also "3" and "1e-3"; finite), bool ("true", "false"), str, tuple ("16,32" or "(16,
    32)", its items of the type of the old ones); "None" where the old value is None or the
    annotation allows it.

    Args:
      old: the present value; `dataclasses.MISSING` if there is none yet.
      hint: gives the annotation of the field; asked only when the type of `old` does not settle it.

    Raises:
      UserError: `text` is none of the types allowed, naming the setting, the text and the types.
    """
    old_kind = set() if text == "None" else {type(old)} - {type(None), type(dataclasses.MISSING)}
    for value in _readings(text, old, old_kind):
        return value
    kinds = ({type(old)} | kinds_of(hint())) - {type(dataclasses.MISSING)}
    for value in _readings(text, old, kinds):
        return value
    if kinds <= {type(None), *UNSAID}:
        return _frozen_literal(text)
    names = " or ".join(_type_name(kind, old) for kind in _READABLE if kind in kinds)
    present = "" if old is dataclasses.MISSING else f" (now {old!r})"
    raise UserError(f"{where}={text!r}: expected {names}{present}")


def _readings(text: str, old: object, kinds: Set[object]) -> Iterator[object]:
    """Yields the values that `text`, which replaces the value `old`, has as each of the types
    `kinds` that it can be read as, the strictest type first.
    """
    for kind in _READABLE:
        if kind in kinds:
            with contextlib.suppress(ValueError):
                yield _read_as(kind, text, old)


def _literal(text: str) -> object:
    """Returns the value of a text that is a Python literal, else the text itself."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _frozen_literal(text: str) -> object:
    """Returns the value of a text that is a Python literal and that a config can hold, with a list
    as a tuple, else the text itself.
    """
    value = _literal(text)
    value = tuple(value) if isinstance(value, list) else value
    return value if is_plain(value) else text


_READABLE = (type(None), bool, int, float, tuple, str)
"""The types that a text can be read as, the strictest first."""


def _read_as(kind: type, text: str, old: object) -> object:
    """Returns the value that `text` has as the type `kind`, one of `_READABLE`, in place of the value
    `old`; raises `ValueError` if it has none.
    """
    is_literal = text[:1] in ("'", '"') or kind in (int, float)
    value = _literal(text) if is_literal else text
    if kind is type(None) and text == "None":
        return None
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is int and type(value) is int:
        return value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _as_float(value)
        if math.isfinite(number):
            return number
    if kind is tuple:
        return _read_tuple(text, old)
    if kind is str:
        return value if isinstance(value, str) else text
    raise ValueError


def _as_float(value: float) -> float:
    """Returns the number as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_tuple(text: str, old: object) -> tuple[object, ...]:
    """Parses `text` as a tuple whose items have the common type of the items of `old`, if they have
    one; raises `ValueError` for anything else.
    """
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


def _type_name(kind: type, old: object) -> str:
    """Returns the name of a type for messages: "true or false", "tuple of int" by the items of
    `old`, "int".
    """
    items = {type(item).__name__ for item in old} if isinstance(old, tuple) else set()
    of_tuple = f"tuple of {items.pop()}" if len(items) == 1 else "tuple"
    names = {bool: "true or false", type(None): "None", tuple: of_tuple}
    return names.get(kind, kind.__name__)


OFF = ("none", "false", "None", "0")
_ANY = "?"  # what only a setting that takes every text can be


def off_value(config: str, name: str, overrides: Sequence[str] = ()) -> object:
    """Returns the value that switches off the setting `name` of a config file with these overrides,
    the first of `OFF` that the setting accepts; raises `UserError` if it accepts none or any text,
    is a pattern, or is off already.

    Raises:
      UserError: no such setting, it can be none of these, or it is off already.
    """
    none = UserError(f"{name} has no value that switches it off; write {name}=VALUE")
    if is_pattern(name):
        raise none
    settings, values = load(config, overrides), {}
    if not {name, f"{name}.name"} & {*flat(settings)}:
        prepare(settings, [f"{name}=None"])  # which says what names are near
    for text in ("", _ANY, *OFF):
        with contextlib.suppress(UserError):
            changed = flat(prepare(settings, [f"{name}={text}"] if text else ()))
            values[text] = changed.get(f"{name}.name", changed.get(name))
    current = values.pop("")
    if _ANY in values or not values:
        raise none
    text, value = next(iter(values.items()))
    if value == current:
        raise UserError(f"{name} is {text} already; there is nothing to take out")
    return value
