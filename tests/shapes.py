"""What only shapes are asked of is traced once for all tests of a file.

Flax compares the shape of every parameter that it reads with that of its initializer, and building
a task traces its system several times, before anything is computed: for its parameters, for what a
pass leaves aside, for the room that decoding takes. Here what was traced before is not traced
again, if all that it is made of is the same; what is made of the shapes remains, and so do errors.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import flax.core.scope
import flax.linen as nn
import jax

from attnlab.tasks import auxiliary, decoders, models

_KNOWN: dict[Hashable, Any] = {}


def _key(one: Any) -> Hashable:
    """What a value is made of: a function of its code and what it holds, a module of its class and
    its fields; so two that are made alike are one.
    """
    if isinstance(one, Mapping):
        return type(one), tuple((key, _key(value)) for key, value in one.items())
    if isinstance(one, (tuple, list)):
        return type(one), tuple(map(_key, one))
    if isinstance(one, types.MethodType):
        return one.__func__, _key(one.__self__)
    if isinstance(one, functools.partial):
        return functools.partial, _key(one.func), _key(one.args), _key(one.keywords)
    if isinstance(one, types.FunctionType):
        cells = tuple(_key(cell.cell_contents) for cell in one.__closure__ or ())
        return one.__code__, _key(one.__defaults__), _key(one.__kwdefaults__), cells
    if isinstance(one, nn.Module) and one.scope is None:
        fields = dataclasses.fields(one)
        return type(one), tuple((field.name, _key(getattr(one, field.name))) for field in fields)
    hash(one)
    return type(one), one


def _shape(traced: Callable[..., Any], *given: Any) -> Any:
    """As `jax.eval_shape`; what holds an array, or anything else that is no key, is traced as
    always.
    """
    try:
        leaves, tree = jax.tree.flatten(given)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        key = (_key(traced), tree, shapes, jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        known = key in _KNOWN
    except (TypeError, ValueError, AttributeError):
        return jax.eval_shape(traced, *given)
    if not known:
        _KNOWN[key] = jax.eval_shape(traced, *given)
    return jax.tree.map(lambda leaf: leaf, _KNOWN[key])  # a tree of the caller's own


class _Jax(types.ModuleType):
    """The module `jax` as others see it."""

    eval_shape = staticmethod(_shape)

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


def remember() -> None:
    """From now on."""
    for module in (flax.core.scope, models, auxiliary, decoders):
        module.jax = _Jax("jax")  # type: ignore[attr-defined]


def forget() -> None:
    """What is remembered so far."""
    _KNOWN.clear()
