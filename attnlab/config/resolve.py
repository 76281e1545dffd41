"""Configs: a Python file and `--config.a.b=value` overrides go in, one complete, checked and locked
tree comes out.

A config file defines `get_config(argument: str) -> ConfigDict`; `configs/translation.py:rnnsearch`
calls it with "rnnsearch". A node with a `name` is a *component* (see `attnlab.config.registry`):
its other keys are that component's own fields, and those the file leaves out are filled in with
their defaults, so the tree says everything a run depends on. A string assigned to a component's
node, or to its name, puts another component in its place.
"""

from __future__ import annotations

import difflib
import inspect
import pathlib
import runpy
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import RequiredValueError

from attnlab.config.checks import read_value, validate
from attnlab.config.registry import Table, fields
from attnlab.config.tree import (
    TABLES,
    Place,
    complete,
    config_hash,
    flat,
    from_dict,
    separate,
    to_dict,
)
from attnlab.errors import UserError, nearest, own_file, place, said, short

__all__ = [
    "SHIPPED",
    "TABLES",
    "call_file",
    "config_hash",
    "find_file",
    "flat",
    "from_dict",
    "load",
    "prepare",
    "to_dict",
    "validate",
]

_INSIDE = pathlib.Path(__file__).parents[1] / "_shipped"
SHIPPED = _INSIDE if _INSIDE.is_dir() else pathlib.Path(__file__).parents[2]
"""Where attnlab's own `configs/` and `experiments/` are: inside an installed package, beside it in a clone."""


def load(
    path_and_argument: str, overrides: Sequence[str] = (), tables: Mapping[str, Table] | None = None
) -> ConfigDict:
    """The config of a file, with overrides.

    Args:
      path_and_argument: "configs/translation.py:rnnsearch"; a path that is not below the current
        folder is looked for among attnlab's own files too. Without a colon `get_config` gets its
        own default, or "".
      overrides: "a.b=value" each, what stands after `--config.` on the command line.
      tables: top-level key to table; `TABLES` unless given.

    Returns:
      The tree after `prepare`.

    Raises:
      UserError: no such file, no `get_config`, an error inside it (with its line), or what
        `prepare` raises.
    """
    config, path = (
        call_file(path_and_argument, "get_config", "config file"),
        path_and_argument.partition(":")[0],
    )
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"{path}: get_config returned {type(config).__name__}, expected"
            " ml_collections.ConfigDict"
        )
    try:
        return prepare(config, overrides, tables)
    except RequiredValueError as error:
        raise UserError(
            f"{path}: a required placeholder has no value; give it a default in the file"
        ) from error


def call_file(path_and_argument: str, function: str, kind: str) -> Any:
    """What `function` of a Python file returns for the argument behind the colon.

    Args:
      path_and_argument: see `load`.
      function: its name; it takes one argument, or none.
      kind: what such a file is called in messages.

    Raises:
      UserError: no such file, no such function, or an error inside it (with its line).
    """
    path, colon, argument = path_and_argument.partition(":")
    found = find_file(path, kind)
    own_file(found)
    try:
        called = runpy.run_path(str(found)).get(function)
        if not callable(called):
            raise UserError(f"{path}: no function {function}(argument) in this file")
        needs_one = any(p.default is p.empty for p in inspect.signature(called).parameters.values())
        return called(*([argument] if colon or needs_one else []))
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's file may raise anything, and leave
        raise UserError(f"{path}{_line(error, found)}: {said(error)}") from error


def prepare(
    config: ConfigDict, overrides: Sequence[str] = (), tables: Mapping[str, Table] | None = None
) -> ConfigDict:
    """Completes a config with the components' defaults, applies overrides, checks it and locks it.

    Component replacements (`system.attention=multihead`) come first, outermost first, whatever
    their order in `overrides`; then all others in the order given. Naming the component that
    already stands there changes nothing.

    Returns:
      A new config; the one given stays as it is.

    Raises:
      UserError: a misspelt key (with the near full names), a value of the wrong type, an unknown
        name, a bad range.
    """
    config = separate(config)
    with config.ignore_type():
        root = Place.root(config, tables)
        complete(root)
        _override(root, [_split(text) for text in overrides])
    validate(config, tables)
    return config.lock()


def find_file(path: str, kind: str) -> pathlib.Path:
    """A config file or the like: as given, or among attnlab's own.

    Raises:
      UserError: there is none, with the near names.
    """
    tried = [pathlib.Path(path), SHIPPED / path]
    for file in tried:
        if file.is_file():
            return file
    folders = [file for file in tried if path and file.is_dir()]
    if folders:
        raise UserError(
            f"{kind} {path!r} is a folder;"
            f" {nearest(path, {f'{path}/{file.name}' for file in folders[0].glob('*.py')})}"
        )
    folders = [file.parent for file in tried if file.parent.is_dir()]
    if not folders:
        raise UserError(f"{kind} {path!r}: no such folder {str(tried[0].parent)!r}")
    names = {
        str(pathlib.Path(path).parent / file.name)
        for folder in folders
        for file in folder.glob("*.py")
    }
    raise UserError(f"no {kind} {path!r}; {nearest(path, names)}")


def _line(error: BaseException, path: pathlib.Path) -> str:
    """The line of the config file an exception came through, as ":12", with that of what it imports
    behind it; "" where it came to none.
    """
    inner = place(error)
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    elsewhere = f": {inner}" if inner and inner.rpartition(":")[0] != short(str(path)) else ""
    return f":{lines[-1]}{elsewhere}" if lines else elsewhere


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
    if parent is None or keys[-1] not in parent.node:
        raise UserError(f"config.{dotted}: no such key; {_near(root, keys)}")
    old = parent.node[keys[-1]]
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
    names = list(flat(root.node))
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
