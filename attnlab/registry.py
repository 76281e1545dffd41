"""Names to things: explicit tables, dotted paths for a user's own, and fields that are the configuration.

A *component* is a class or function whose parameters with a default are its configuration; parameters without
a default are handed over by the code that uses it (a vocabulary size, say). A config node that names a component
is a mapping `{"name": ..., field: value, ...}`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from attnlab.errors import UserError, nearest

_NOT_CONFIG = {"parent", "name"}  # linen adds these two to every module


class Table:
    """An ordered table of components: `name -> "module:attribute"`, imported on first use.

    Attributes:
      kind: what the entries are, in the singular ("mechanism"); used in messages.
      entries: the table itself.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self.entries = dict(entries)

    def names(self) -> list[str]:
        """The registered names, in the order of the table."""
        return list(self.entries)

    def resolve(self, name: str) -> Any:
        """The component called `name`, or the object at the dotted path `package.module:Attribute`.

        Raises:
          UserError: no such name (with near names), or nothing importable at the dotted path.
        """
        if not isinstance(name, str) or not name:
            raise UserError(f"{self.kind} {name!r}: a name is needed; choose from: {', '.join(self.entries)}")
        path = name if ":" in name else self.entries.get(name)
        if path is None:
            raise UserError(f"unknown {self.kind} {name!r}; {nearest(name, self.entries)}")
        module, _, attribute = path.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise UserError(f"{self.kind} {name!r}: cannot import {module!r}: {error}") from error
        except AttributeError as error:
            raise UserError(f"{self.kind} {name!r}: {module!r} has no attribute {attribute!r}") from error

    def defaults(self, name: str) -> dict[str, Any]:
        """The configuration fields of `name` with their default values."""
        return {field: value for field, value in fields(self.resolve(name)).items() if value is not inspect.Parameter.empty}


def fields(component: Callable[..., Any]) -> dict[str, Any]:
    """Parameters of a component and their defaults; `inspect.Parameter.empty` where the code must supply one."""
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(component).parameters.values()
        if parameter.name not in _NOT_CONFIG and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def build(table: Table, spec: Mapping[str, Any], where: str) -> Callable[..., Any]:
    """A factory for the component that `spec` names, its fields bound and its parts built.

    Args:
      table: where `spec["name"]` is looked up.
      spec: a config node, `{"name": ..., field: value, ...}`.
      where: the node's place in the config, for messages ("system.attention").

    Returns:
      `functools.partial(component, **fields)`. A field for which the component's `parts` (a mapping of field to
      table) names a table is itself built into a factory.

    Raises:
      UserError: unknown name, unknown field or a value of the wrong type, naming the place and the near names.
    """
    component = table.resolve(spec.get("name", ""))
    known = fields(component)
    parts: Mapping[str, Table] = getattr(component, "parts", {})
    hints = typing.get_type_hints(component)
    values: dict[str, Any] = {}
    for field, value in spec.items():
        if field == "name":
            continue
        if field not in parts and known.get(field, inspect.Parameter.empty) is inspect.Parameter.empty:
            settable = [name for name, default in known.items() if name in parts or default is not inspect.Parameter.empty]
            raise UserError(f"{where}: {spec['name']} has no field {field!r} to set; {nearest(field, settable)}")
        if field in parts:
            values[field] = build(parts[field], {"name": value} if isinstance(value, str) else value, f"{where}.{field}")
            continue
        check_type(value, hints.get(field, Any), f"{where}.{field}")
        values[field] = tuple(value) if isinstance(value, list) else value
    return functools.partial(component, **values)


Part = str | Mapping[str, Any] | Callable[..., Any]
"""A field that holds a component: a name or a node in configs and defaults, a factory once built."""


def made(table: Table, part: Part) -> Callable[..., Any]:
    """The factory of a `Part`, built if it is still a name or a node."""
    if callable(part):
        return part
    return build(table, {"name": part} if isinstance(part, str) else part, table.kind)


def kind(factory: Callable[..., Any]) -> Any:
    """The class or function behind a factory."""
    return factory.func if isinstance(factory, functools.partial) else factory


def holds(factory: Any, wanted: type) -> bool:
    """Whether a factory makes a `wanted` or, at any depth, has a factory of one among its parts."""
    made_here = isinstance(kind(factory), type) and issubclass(kind(factory), wanted)
    return made_here or any(holds(part, wanted) for part in getattr(factory, "keywords", {}).values())


def check_type(value: Any, hint: Any, where: str) -> None:
    """Raise `UserError` unless `value` fits an annotation made of int, float, bool, str, None, tuple, Literal and unions of them.

    An int fits a float, a list fits a tuple; anything else in an annotation is not checked.
    """
    if not _fits(value, hint):
        wanted = " or ".join(_named(hint))
        words = [one for one in typing.get_args(hint) if isinstance(one, str)]
        if words and isinstance(value, str):
            raise UserError(f"{where}={value!r}; {nearest(value, words)}")
        raise UserError(f"{where}={value!r} is of type {type(value).__name__}, expected {wanted}")


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is typing.Literal:
        return any(value == one and type(value) is type(one) for one in typing.get_args(hint))
    kind = origin or hint
    if kind is None or kind is type(None):
        return value is None
    accepted: Any = {bool: bool, int: int, float: (int, float), str: str, tuple: (tuple, list)}.get(kind)
    return accepted is None or (isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)))


def _named(hint: Any) -> list[str]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [name for one in typing.get_args(hint) for name in _named(one)]
    if typing.get_origin(hint) is typing.Literal:
        return [repr(one) for one in typing.get_args(hint)]
    return ["None" if hint in (None, type(None)) else getattr(typing.get_origin(hint) or hint, "__name__", str(hint))]
