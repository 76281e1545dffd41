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
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from attnlab.config.checks import Kind, schema_of, validate
from attnlab.config.files import stated
from attnlab.config.registry import fields
from attnlab.config.schema import Node
from attnlab.config.tree import Place, complete, flat, from_dict, separate, to_dict
from attnlab.config.values import read_value
from attnlab.errors import UserError


def load(
    path_and_argument: str, overrides: Sequence[str] = (), schema: type[Node] | None = None
) -> Any:
    """The settings of a config file, with overrides.

    Args:
      path_and_argument: "configs/translation.py:rnnsearch", see `attnlab.config.files.stated`.
      overrides: "a.b=value" each, what stands after `--config.` on the command line.
      schema: the class that describes the config; that of its task unless given.

    Returns:
      What `prepare` makes of it.

    Raises:
      UserError: what `stated` and `prepare` raise.
    """
    config = stated(path_and_argument)
    try:
        return prepare(config, overrides, schema)
    except RequiredValueError as error:
        path = path_and_argument.partition(":")[0]
        raise UserError(
            f"{path}: a required placeholder has no value; give it a default in the file"
        ) from error


def prepare(
    config: Mapping[str, Any] | Node,
    overrides: Sequence[str] = (),
    schema: type[Node] | None = None,
) -> Any:
    """Completes a config with defaults, applies overrides and checks it.

    The task comes first, for it says which settings there are. Then component replacements
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
    tree = separate(config) if isinstance(config, ConfigDict) else from_dict(to_dict(config))
    wanted = [_split(text) for text in overrides]
    with tree.ignore_type():
        for task in [text for keys, text in wanted if keys == ["task"]]:
            tree.task = task
        schema = schema or schema_of(tree)
        root = Place(tree, "", schema)
        named = {*flat(tree), *(".".join(keys) for keys, _ in wanted)}
        complete(root)
        _override(root, wanted)
        return validate(tree, schema, named)


def as_stored(config: Kind, tree: Mapping[str, Any], chosen: Iterable[str] = ()) -> Kind:
    """Settings of which those that are newer than a stored config mean what that one meant, see
    `tree.OLDER`; those that `chosen` names ("a.b=value") stay.
    """
    kept = {*flat(tree), *(override.partition("=")[0] for override in chosen)}
    known, older = flat(config), flat(from_dict(tree))
    newer = {name: value for name, value in older.items() if name in known and name not in kept}
    if not newer:
        return config
    found = from_dict(to_dict(config))
    found.update_from_flattened_dict(newer)
    settings: Kind = prepare(found, (), type(config))
    return settings


def _split(text: str) -> tuple[list[str], str]:
    """The override "a.b=value" as (["a", "b"], "value")."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"config.{name}: no value given, write --config.{name}=VALUE")
    return name.split("."), value


def _override(root: Place, overrides: Iterable[tuple[list[str], str]]) -> None:
    """Applies overrides to the tree in place: replacements of components first, outermost first."""

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


def _walk(place: Place, keys: Iterable[str]) -> Place | None:
    """The node below `place` along `keys`, or None."""
    found: Place | None = place
    for key in keys:
        found = found.child(key) if found else None
    return found


def _replace(parent: Place, key: str, name: str) -> None:
    """Puts the component `name` with its own defaults at `key`, unless it stands there already."""
    old = parent.node.get(key)
    if isinstance(old, ConfigDict) and old.get("name") == name:
        return
    optional = parent.component is not None and fields(parent.component)[key] is None
    parent.node[key] = None if name == "None" and optional else {"name": name}
    child = parent.child(key)
    if child is not None:
        complete(child)


def _assign(root: Place, keys: list[str], text: str) -> None:
    """Sets one plain value, read by the type of the value it replaces."""
    dotted = ".".join(keys)
    parent = _walk(root, keys[:-1])
    if parent is None or keys[-1] not in {*parent.node, *parent.described}:
        raise UserError(f"config.{dotted}: no such key; {_near(root, keys)}")
    old = parent.node.get(keys[-1], dataclasses.MISSING)
    if isinstance(old, ConfigDict):
        inside = ", ".join(f"{dotted}.{key}" for key in old)
        raise UserError(
            f"config.{dotted} is a group of settings, not a value; set one of: {inside}"
        )
    parent.node[keys[-1]] = read_value(text, old, lambda: parent.hint(keys[-1]), f"config.{dotted}")


def _near(root: Place, keys: list[str]) -> str:
    """The full names like a misspelt one; else those that end alike; else what there is at the last
    place that exists.
    """
    below = [f"{node}.{key}" for node, one in root.described.items() for key in one.below]
    names = list(dict.fromkeys([*flat(root.node), *below]))
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
    known = max(
        (place for end in range(len(keys)) if (place := _walk(root, keys[:end]))),
        key=lambda place: len(place.where),
    )
    return "choose from: " + ", ".join(map(known.name, known.node))
