"""Names of components: explicit tables, dotted paths for a user's own, and fields that are the
configuration.

A *component* is a class or function whose parameters with a default are its configuration;
parameters without a default are handed over by the code that uses it (a vocabulary size, say). A
config node that names a component is a mapping `{"name": ..., field: value, ...}`.
"""

import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeGuard, TypeVar

from ml_collections import ConfigDict

from attnlab import errors
from attnlab.config.annotations import check_type, hints
from attnlab.errors import UserError, nearest

_NOT_CONFIG = {"parent", "name"}  # linen adds these two to every module
_BY_CODE = {
    "learning_rate",  # supplied by the schedule, even where an optimizer has a default of its own
    "pad_id",  # of the vocabulary, as the next
    "bos_id",
}


T = TypeVar("T", bound=Callable[..., object], covariant=True)
Built = TypeVar("Built")


@dataclasses.dataclass(frozen=True, eq=False)
class Table(Generic[T]):
    """An ordered table of components of one type: `name -> "module:attribute"`, imported on first use.

    Attributes:
      kind: what the entries are, in the singular ("mechanism"); used in messages.
      entries: the table itself.
      base: "module:Class" from which a component must be derived; "" for any class or function.
      given: the parameters that code supplies. Without a base a component must take them.
      declares: attributes that a component must have, of the types that the base annotates them
        with.
    """

    kind: str
    entries: Mapping[str, str]
    base: str = ""
    given: Sequence[str] = ()
    declares: Sequence[str] = ()

    def names(self) -> list[str]:
        """The registered names, in the order of the table."""
        return list(self.entries)

    def resolve(self, name: object) -> T:
        """Returns the component called `name` in this table, or the object at the dotted path
        `package.module:Attribute`, imported and checked to fit the table; raises `UserError` if
        there is none.

        Raises:
          UserError: see `find` and `check`.
        """
        component = self.find(name)
        self.check(component, str(name), f"{self.kind} {name!r}")
        return component

    def find(self, name: object) -> T:
        """Imports and returns the object that `name` leads to, an entry of the table or a dotted
        path "module:attribute", of any type (see `check`); raises `UserError` if there is none.

        Raises:
          UserError: no such name (with near names), or nothing importable at the dotted path, with
            file and line where it went wrong.
        """
        if not isinstance(name, str) or not name:
            raise UserError(
                f"{self.kind} {name!r}: a name is needed; choose from: {', '.join(self.entries)}"
            )
        path = name if ":" in name else self.entries.get(name)
        if path is None:
            raise UserError(f"unknown {self.kind} {name!r}; {nearest(name, self.entries)}")
        module, _, attribute = path.partition(":")
        if ":" in name:
            errors.own_module(module)
        try:
            return getattr(importlib.import_module(module), attribute)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's module may raise anything, and leave
            raise UserError(f"{self.kind} {name!r}: {_reason(error, module, attribute)}") from error

    def check(self, component: object, name: str, where: str) -> None:
        """Raises `UserError` unless the object of a dotted path can be a component of this table:
        base class, declared attributes, parameters, no old names; entries of the table always can.

        Args:
          component: the result of `find`.
          name: the name given to `find`.
          where: the beginning of messages.

        Raises:
          UserError: it cannot; the message says why, with file and line of the object.
        """
        if ":" not in name:
            return
        described = f"{_description(component)}{location(component) or _file(name)}"
        base = import_object(self.base, type) if self.base else None
        if base is not None and not (isinstance(component, type) and issubclass(component, base)):
            raise UserError(
                f"{where}: expected a class derived from {base.__module__}.{base.__name__}, this is"
                f" {described}"
            )
        if not callable(component):
            raise UserError(f"{where}: expected a class or a function, this is {described}")
        read = getattr(component, "read", None)
        arguments = inspect.signature(read).parameters if callable(read) else ()
        for room, names in errors.RENAMED.items():
            ours = base is not None and base.__module__.startswith(room)
            for old, new in names.items() if ours else ():
                if hasattr(component, old) or old in arguments:
                    raise UserError(f"{where}: {described} has {old}, which is now {new}")
        for attribute in self.declares:
            hint = hints(base).get(attribute) if base else None
            _check_declared(component, attribute, hint, f"{where}: {described}")
        self._check_parameters(component, where, described)

    def _check_parameters(
        self, component: Callable[..., object], where: str, described: str
    ) -> None:
        """Raises `UserError` unless a component accepts the parameters that code supplies (checked
        only for tables without a base class) and has a default for all others but its parts.
        """
        try:
            parameters = fields(component)
        except (TypeError, ValueError) as error:
            if not self.given:
                return
            raise UserError(
                f"{where}: its parameters cannot be told ({error}); call it in a function of"
                " your own"
            ) from error
        takes_any = any(
            p.kind is p.VAR_KEYWORD for p in inspect.signature(component).parameters.values()
        )
        missing = [name for name in self.given if name not in parameters]
        if missing and not self.base and not takes_any:
            raise UserError(
                f"{where}: {described} does not take {missing[0]!r}, which every {self.kind} gets;"
                f" it takes: {', '.join(parameters)}"
            )
        supplied = {*self.given, *settable(component)}
        if unset := [name for name in parameters if name not in supplied]:
            raise UserError(
                f"{where}: {described} has the field {unset[0]!r} without a default, which nobody"
                " supplies; give it one"
            )


Components: TypeAlias = Table[Callable[..., object]]
Parts: TypeAlias = Mapping[str, Components]
"""The fields of a component that hold components, with the table each comes from."""


def fields(component: Callable[..., object]) -> dict[str, object]:
    """Returns the parameters of a component that can be fields of a config, by name, with their
    defaults; `inspect.Parameter.empty` where there is no default, or where code supplies the value.
    """
    return {
        parameter.name: inspect.Parameter.empty if parameter.name in _BY_CODE else parameter.default
        for parameter in inspect.signature(component).parameters.values()
        if parameter.name not in _NOT_CONFIG
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def settable(component: Callable[..., object]) -> set[str]:
    """Returns the names of the fields of a component that a config may set: those with a default, and
    those that hold components.
    """
    parts: Parts = getattr(component, "parts", {})
    parameters = fields(component).items()
    return {
        name
        for name, default in parameters
        if name in parts or default is not inspect.Parameter.empty
    }


def import_object(path: str, kind: type[Built]) -> Built:
    """Imports and returns the object at "module:attribute"; raises TypeError unless it is an
    instance of `kind`.
    """
    module, _, attribute = path.partition(":")
    component = getattr(importlib.import_module(module), attribute)
    if not isinstance(component, kind):
        raise TypeError(f"{path} is no {kind.__name__}")
    return component


def build(
    table: Table[Callable[..., Built]], spec: Mapping[str, object], where: str
) -> functools.partial[Built]:
    """Returns a factory (a `functools.partial`) for the component that `spec` names, with its
    fields checked and bound and its parts built in the same way; raises `UserError`.

    Args:
      table: where `spec["name"]` is looked up.
      spec: a config node, `{"name": ..., field: value, ...}`.
      where: the node's dotted name in the config, for messages ("system.attention").

    Returns:
      `functools.partial(component, **fields)`. A field for which the component's `parts` (a mapping
      of field to table) names a table is itself built into a factory.

    Raises:
      UserError: unknown name, unknown field or a value of the wrong type, with the dotted name and
        the near names.
    """
    component, name = table.find(spec.get("name", "")), str(spec.get("name"))
    table.check(component, name, f"{where}={name}")
    parts: Parts = getattr(component, "parts", {})
    annotations, allowed = hints(component), settable(component)
    values: dict[str, object] = {}
    for field, value in spec.items():
        if field == "name":
            continue
        if field not in allowed and field not in parts:
            raise UserError(
                f"{where}: {name} has no field {field!r} to set; {nearest(field, allowed)}"
            )
        if field in parts and value is not None:
            node = value if isinstance(value, (Mapping, ConfigDict)) else {"name": value}
            values[field] = build(parts[field], node, f"{where}.{field}")
            continue
        check_type(value, annotations.get(field, inspect.Parameter.empty), f"{where}.{field}")
        values[field] = tuple(value) if isinstance(value, list) else value
    return functools.partial(component, **values)


Part = str | Mapping[str, object] | Callable[..., object]
"""A field that holds a component: a name or a node in configs and defaults, a factory once built."""


def made(table: Table[Callable[..., Built]], part: Part) -> Callable[..., Built]:
    """Returns the factory of a `Part`, built by `table` if it is still a name or a node."""
    if _is_factory(part, table):
        return part
    node = part if isinstance(part, (Mapping, ConfigDict)) else {"name": part}
    return build(table, node, table.kind)


def _is_factory(part: Part, table: Table[Callable[..., Built]]) -> TypeGuard[Callable[..., Built]]:
    """Whether a part is a factory; it then makes what those of the table make, since `build` made it."""
    return callable(part)


def location(component: object) -> str:
    """Returns the source file and line of a class, function or module as " (file.py:12)"; "" if
    unknown.
    """
    if callable(component) or isinstance(component, types.ModuleType):
        with contextlib.suppress(TypeError, OSError):
            file, (_, line) = inspect.getsourcefile(component), inspect.getsourcelines(component)
            return f" ({errors.short(file or '')}:{line})"
    return ""


def kind(factory: Callable[..., Built]) -> type[Built]:
    """Returns the class behind a factory; raises `TypeError` where a function makes the objects."""
    component = behind(factory)
    if not isinstance(component, type):
        raise TypeError(f"{component} is no class")
    return component


def behind(factory: object) -> object:
    """The class or function behind a factory; anything else is itself."""
    return factory.func if isinstance(factory, functools.partial) else factory


def holds(factory: object, cls: type) -> bool:
    """Returns whether a factory makes a `cls` or, at any depth, has a factory of one as a part."""
    component = behind(factory)
    makes = isinstance(component, type) and issubclass(component, cls)
    return makes or any(holds(part, cls) for part in getattr(factory, "keywords", {}).values())


def _reason(error: BaseException, module: str, attribute: str) -> str:
    """Returns a message on why importing an attribute of a module failed: the module is not found,
    raises (with the line), or has no such attribute.
    """
    loaded = sys.modules.get(module)
    lacks = isinstance(error, AttributeError) and error.obj is loaded and error.name == attribute
    if lacks and loaded is not None:
        names = [name for name in vars(loaded) if not name.startswith("_")]
        near = difflib.get_close_matches(attribute, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{module!r} has no attribute {attribute!r}{_file(module)}{hint}"
    where = errors.users_line(error)
    if isinstance(error, ModuleNotFoundError) and not where:
        return (
            f"cannot import {module!r}: {error}; looked for it among what is installed and in"
            f" {os.getcwd()}"
            + (f"; it is now {errors.MOVED[module]}" if module in errors.MOVED else "")
        )
    if isinstance(error, (ImportError, UserError)) and not where:
        return f"cannot import {module!r}: {error}"
    return f"cannot import {module!r}: {f'{where}: ' if where else ''}{errors.reason(error)}"


def _description(value: object) -> str:
    """Returns a phrase for messages on what a value is: "the class X", "the module m", "the
    function f", or for any other "of type int".
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    return f"of type {type(value).__name__}"


def _file(path: str) -> str:
    """Returns the file of the module of a dotted path as " (file.py)"; "" where it has none."""
    file = getattr(sys.modules.get(path.partition(":")[0]), "__file__", None)
    return f" ({errors.short(file)})" if file else ""


def _check_declared(component: object, attribute: str, hint: object, begin: str) -> None:
    """Raises `UserError`, whose message starts with `begin`, unless a component has the attribute, of
    the type in `hint`, the annotation of its base.
    """
    allowed = typing.get_args(hint) if typing.get_origin(hint) is typing.ClassVar else ()
    expected = next(iter(allowed), None)
    name = f"{attribute} = {expected.__name__}(...)" if isinstance(expected, type) else attribute
    if not hasattr(component, attribute):
        raise UserError(f"{begin} declares no {attribute}; write {name}")
    value = getattr(component, attribute)
    if isinstance(expected, type) and not isinstance(value, expected):
        raise UserError(
            f"{begin} declares {attribute} of type {type(value).__name__}; write {name}"
        )
