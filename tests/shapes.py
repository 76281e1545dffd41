"""What only shapes are asked of is traced once for all tests of a file.

Flax compares the shape of every parameter that it reads with that of its initializer, and building
a task traces its system several times, before anything is computed: for its parameters, for what a
pass leaves aside, for the room that decoding takes. Here what was traced before is not traced
again, if all that it is made of is the same; what is made of the shapes remains, and so do errors.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import flax.core.scope
import flax.linen as nn
import jax

from attnlab.tasks import auxiliary, decoders, models

_SHAPES: dict[Hashable, Any] = {}


def _key(value: Any) -> Hashable:
    """The parts of a value, as a key: a function is its code and what it holds, a module its class
    and its fields; so two values that are made alike have one key.
    """
    if isinstance(value, Mapping):
        return type(value), tuple((key, _key(entry)) for key, entry in value.items())
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_key, value))
    if isinstance(value, types.MethodType):
        return value.__func__, _key(value.__self__)
    if isinstance(value, functools.partial):
        return functools.partial, _key(value.func), _key(value.args), _key(value.keywords)
    if isinstance(value, types.FunctionType):
        cells = tuple(_key(cell.cell_contents) for cell in value.__closure__ or ())
        return value.__code__, _key(value.__defaults__), _key(value.__kwdefaults__), cells
    if isinstance(value, nn.Module) and value.scope is None:
        fields = dataclasses.fields(value)
        return type(value), tuple((one.name, _key(getattr(value, one.name))) for one in fields)
    hash(value)
    return type(value), value


def _shape_of(traced: Callable[..., Any], *given: Any) -> Any:
    """The shapes of a result, as `jax.eval_shape` gives them; a function that holds an array, or
    anything else that cannot be a key, is traced as always.
    """
    try:
        leaves, tree = jax.tree.flatten(given)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        key = (_key(traced), tree, shapes, jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        traced_before = key in _SHAPES
    except (TypeError, ValueError, AttributeError):
        return jax.eval_shape(traced, *given)
    if not traced_before:
        _SHAPES[key] = jax.eval_shape(traced, *given)
    return jax.tree.map(lambda leaf: leaf, _SHAPES[key])  # a tree of the caller's own


class _Jax(types.ModuleType):
    """The module `jax` as others see it."""

    eval_shape = staticmethod(_shape_of)

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


def share_shapes() -> None:
    """From now on, shapes that were traced before are not traced again."""
    for module in (flax.core.scope, models, auxiliary, decoders):
        module.jax = _Jax("jax")  # type: ignore[attr-defined]


def forget_shapes() -> None:
    """Drops all shapes that were traced so far."""
    _SHAPES.clear()
