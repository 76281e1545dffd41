"""The types that the annotations of fields allow for their values."""

import contextlib
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping

from attnlab.errors import UserError, nearest

UNSAID = (inspect.Parameter.empty, typing.Any)
"""Annotations that allow everything: none at all, and `Any`."""
_ACCEPTED: Mapping[object, type | tuple[type, ...]] = {
    bool: bool,
    int: int,
    float: (int, float),
    str: str,
    tuple: (tuple, list),
}
"""The types of the values that fit an annotation; what is not here is not checked."""


def hints(component: Callable[..., object]) -> dict[str, object]:
    """Returns the annotations of a component's parameters by name, with text annotations evaluated;
    those that only a type checker can resolve are left out, and so go unchecked.
    """
    with contextlib.suppress(Exception):  # an annotation may raise anything
        return typing.get_type_hints(component)
    annotations: dict[str, object] = {}
    function = component.func if isinstance(component, functools.partial) else component
    for cls in reversed(getattr(function, "__mro__", (function,))):
        module = sys.modules.get(getattr(cls, "__module__", ""))
        names = getattr(inspect.unwrap(cls), "__globals__", vars(module) if module else {})
        for field, annotation in inspect.get_annotations(cls).items():
            annotations.pop(field, None)
            if not isinstance(annotation, str):
                annotations[field] = annotation  # its inner names may stay unknown, its form is not
            with contextlib.suppress(Exception):
                annotations[field] = typing.get_type_hints(
                    types.SimpleNamespace(__annotations__={field: annotation}), names
                )[field]
    return annotations


def kinds(hint: object) -> set[object]:
    """Returns the set of classes an annotation allows: those of each member of a union, of a
    Literal's values, the origin of a generic.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(kinds, typing.get_args(hint)))
    if origin is typing.Literal:
        return {type(value) for value in typing.get_args(hint)}
    return {origin or hint}


def check_type(value: object, hint: object, where: str) -> None:
    """Raises `UserError` unless `value` fits an annotation made of int, float, bool, str, None,
    tuple, Literal and unions of them.

    An int fits a float, a list fits a tuple, only a function the Callable of a union; anything else
    in an annotation is not checked.
    """
    if not _fits(value, hint):
        expected = " or ".join(_type_names(hint))
        choices = [choice for choice in typing.get_args(hint) if isinstance(choice, str)]
        if choices and isinstance(value, str):
            raise UserError(f"{where}={value!r}; {nearest(value, choices)}")
        raise UserError(f"{where}={value!r} is of type {type(value).__name__}, expected {expected}")


def _fits(value: object, hint: object) -> bool:
    """Returns whether a value fits an annotation by the rules of `check_type`: an int fits a float,
    a bool is no number; types that are not listed there accept anything.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        args = typing.get_args(hint)
        functions = [arg for arg in args if typing.get_origin(arg) is Callable]
        if functions:  # "a mask or a function of one": a config can hold neither
            others = [arg for arg in args if arg not in (*functions, *UNSAID)]
            return callable(value) or any(_fits(value, arg) for arg in others)
        return any(_fits(value, arg) for arg in args)
    if origin is typing.Literal:
        return any(value == arg and type(value) is type(arg) for arg in typing.get_args(hint))
    kind = origin or hint
    if kind is None or kind is type(None):
        return value is None
    accepted = _ACCEPTED.get(kind)
    return accepted is None or (
        isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))
    )


def _type_names(hint: object) -> list[str]:
    """Returns the names of the types, or the choices of a Literal, that an annotation allows, as a
    list for messages.
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [name for arg in typing.get_args(hint) for name in _type_names(arg)]
    if typing.get_origin(hint) is typing.Literal:
        return [repr(arg) for arg in typing.get_args(hint)]
    if hint in (None, type(None)):
        return ["None"]
    return [getattr(typing.get_origin(hint) or hint, "__name__", str(hint))]
