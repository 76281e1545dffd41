"""Configs: a Python file and `--config.a.b=value` overrides go in, settings come out: one complete
and checked object of the class that describes the config.

They say everything a run depends on: what file and overrides leave out is filled in with the
defaults of the nodes (`attnlab.config.schema`) and of the components, the nodes with a `name` (see
`attnlab.config.registry`). A string assigned to a component's node, or to its name, puts another
component in its place.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from attnlab.config.checks import Kind, schema_of, validate
from attnlab.config.files import read_config_file
from attnlab.config.registry import fields
from attnlab.config.schema import Node
from attnlab.config.tree import ConfigNode, complete, copy_tree, flat, from_dict, to_dict
from attnlab.config.values import read_value
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings


@overload
def load(path_and_argument: str, overrides: Sequence[str] = ()) -> Settings: ...
@overload
def load(path_and_argument: str, overrides: Sequence[str], schema: type[Kind]) -> Kind: ...
def load(
    path_and_argument: str, overrides: Sequence[str] = (), schema: type[Node] | None = None
) -> Node:
    """The settings of a config file, with overrides.

    Args:
      path_and_argument: "configs/translation.py:rnnsearch", see `files.read_config_file`.
      overrides: "a.b=value" each, the text after `--config.` on the command line.
      schema: the class that describes the config; that of its task unless given.

    Returns:
      The result of `prepare`.

    Raises:
      UserError: what `read_config_file` and `prepare` raise.
    """
    config = read_config_file(path_and_argument)
    try:
        return prepare(config, overrides, schema) if schema else prepare(config, overrides)
    except RequiredValueError as error:
        path = path_and_argument.partition(":")[0]
        raise UserError(
            f"{path}: a required placeholder has no value; give it a default in the file"
        ) from error


@overload
def prepare(config: Mapping[str, object] | Node, overrides: Sequence[str] = ()) -> Settings: ...
@overload
def prepare(
    config: Mapping[str, object] | Node, overrides: Sequence[str], schema: type[Kind]
) -> Kind: ...
def prepare(
    config: Mapping[str, object] | Node,
    overrides: Sequence[str] = (),
    schema: type[Node] | None = None,
) -> Node:
    """Complete a config with defaults, apply overrides and check it.

    The task comes first, since it decides which settings there are. Then component replacements
    (`system.attention=multihead`), outermost first, whatever their order in `overrides`; then all
    others in the order given. Naming the component that already stands there changes nothing.

    Args:
      config: as a file has it, as it was stored (`tree.to_dict`), or settings.
      overrides: see `load`.
      schema: see `load`.

    Returns:
      An object of the schema; the config given stays as it is.

    Raises:
      UserError: a misspelt or missing key (with the near full names), a value of the wrong type, an
        unknown name, a bad range.
    """
    tree = copy_tree(config) if isinstance(config, ConfigDict) else from_dict(to_dict(config))
    assignments = [_split(text) for text in overrides]
    with tree.ignore_type():
        for task in [text for keys, text in assignments if keys == ["task"]]:
            tree.task = task
        schema = schema or schema_of(tree)
        root = ConfigNode(tree, "", schema)
        set_names = {*flat(tree), *(".".join(keys) for keys, _ in assignments)}
        complete(root)
        _override(root, assignments)
        return validate(tree, schema, set_names)


def as_stored(config: Kind, tree: Mapping[str, object], chosen: Iterable[str] = ()) -> Kind:
    """Settings in which those newer than a stored config have the values that it meant, see
    `tree.OLDER`; those that `chosen` names ("a.b=value") stay.
    """
    fixed = {*flat(tree), *(override.partition("=")[0] for override in chosen)}
    current, older = flat(config), flat(from_dict(tree))
    newer = {name: value for name, value in older.items() if name in current and name not in fixed}
    if not newer:
        return config
    updated = from_dict(to_dict(config))
    updated.update_from_flattened_dict(newer)
    return prepare(updated, (), type(config))


def _split(text: str) -> tuple[list[str], str]:
    """The override "a.b=value" as (["a", "b"], "value")."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"config.{name}: no value given, write --config.{name}=VALUE")
    return name.split("."), value


def _override(root: ConfigNode, overrides: Iterable[tuple[list[str], str]]) -> None:
    """Apply overrides to the tree in place: replacements of components first, outermost first."""

    def slot(keys: list[str]) -> list[str]:
        return keys[:-1] if keys[-1] == "name" and len(keys) > 1 else keys

    overrides = list(overrides)
    replaced = set()
    last = {tuple(slot(keys)): text for keys, text in overrides}
    for *path, key in sorted(last, key=len):
        parent = _walk(root, path)
        if parent is not None and key in parent.tables:
            _replace(parent, key, last[*path, key])
            replaced.add((*path, key))
    for keys, text in overrides:
        if tuple(slot(keys)) not in replaced:
            _assign(root, keys, text)


def _walk(root: ConfigNode, keys: Iterable[str]) -> ConfigNode | None:
    """The node below `root` along `keys`, or None."""
    node: ConfigNode | None = root
    for key in keys:
        node = node.child(key) if node else None
    return node


def _replace(parent: ConfigNode, key: str, name: str) -> None:
    """Put the component `name` with its own defaults at `key`, unless it stands there already."""
    old = parent.values.get(key)
    if isinstance(old, ConfigDict) and old.get("name") == name:
        return
    optional = parent.component is not None and fields(parent.component)[key] is None
    parent.values[key] = None if name == "None" and optional else {"name": name}
    child = parent.child(key)
    if child is not None:
        complete(child)


def _assign(root: ConfigNode, keys: list[str], text: str) -> None:
    """Set one plain value, read by the type of the value it replaces."""
    dotted = ".".join(keys)
    *path, key = keys
    parent = _walk(root, path)
    if parent is None or key not in {*parent.values, *parent.settings}:
        raise UserError(f"config.{dotted}: no such key; {_near(root, keys)}")
    old = parent.values.get(key, dataclasses.MISSING)
    if isinstance(old, ConfigDict):
        names = ", ".join(f"{dotted}.{name}" for name in old)
        raise UserError(f"config.{dotted} is a group of settings, not a value; set one of: {names}")
    parent.values[key] = read_value(text, old, lambda: parent.hint(key), f"config.{dotted}")


def _near(root: ConfigNode, keys: list[str]) -> str:
    """The full names similar to a misspelt one; else those that end alike; else the keys of the
    last node that exists.
    """
    below = [f"{group}.{key}" for group, setting in root.settings.items() for key in setting.below]
    names = list(dict.fromkeys([*flat(root.values), *below]))
    names += sorted({name[:dot] for name in names for dot, sign in enumerate(name) if sign == "."})
    names = [name for name in names if not ".".join(keys).startswith(f"{name}.")]
    close = difflib.get_close_matches(".".join(keys), names, n=3, cutoff=0.75)
    if not close:
        ends = difflib.get_close_matches(
            keys[-1], {name.rpartition(".")[2] for name in names}, n=1, cutoff=0.75
        )
        close = [name for name in names if name.rpartition(".")[2] in ends][:3]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    deepest = max(
        (node for end in range(len(keys)) if (node := _walk(root, keys[:end]))),
        key=lambda node: len(node.path),
    )
    return "choose from: " + ", ".join(map(deepest.full_name, deepest.values))
