"""Parameters that lie in parts on several devices, gathered where a program computes with them.

A loss gets all of them whole: each is gathered in the program (`whole`), and XLA chooses when. A
loop over layers would have those of all layers before it begins: it takes the parts instead
(`in_parts`) and gathers those of one layer in each turn (`gathered_as`); what is not used whole is
not gathered whole. Gradients are divided as the parameters lie, in each turn too.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import jax

Gather = Callable[[jax.Array], jax.Array]
_parts = ContextVar[Mapping[int, tuple[jax.Array, Gather]]]("_parts", default=MappingProxyType({}))
"""By the identity of a whole parameter its part, and what gathers such a part."""


@contextlib.contextmanager
def whole(params: Any, shardings: Any, everywhere: Any) -> Iterator[Any]:
    """A context whose value is the tree `params` gathered on all devices (sharding `everywhere`)
    from its parts, divided by `shardings`; until its end it records, for each gathered array, its
    part and gathering function.

    Args:
      params: in parts.
      shardings: of each parameter.
      everywhere: the sharding of what all devices have.
    """
    parts, structure = jax.tree.flatten(params)
    gathers = [_gathering(everywhere, sharding) for sharding in jax.tree.leaves(shardings)]
    leaves = [gather(part) for gather, part in zip(gathers, parts, strict=True)]
    pairs = zip(parts, gathers, strict=True)
    token = _parts.set(dict(zip(map(id, leaves), pairs, strict=True)))
    try:
        yield jax.tree.unflatten(structure, leaves)
    finally:
        _parts.reset(token)


def in_parts(params: Any) -> Any:
    """Parameters as they lie, where they are gathered."""
    return jax.tree.map(lambda leaf: _part_of(leaf)[0], params)


def gathered_as(params: Any, parts: Any) -> Any:
    """Parts like those of `params` (of another layer, say), gathered."""
    return jax.tree.map(lambda leaf, part: _part_of(leaf)[1](part), params, parts)


def _part_of(leaf: jax.Array) -> tuple[jax.Array, Gather]:
    return _parts.get().get(id(leaf), (leaf, lambda part: part))


def _gathering(everywhere: Any, sharding: Any) -> Gather:
    """Returns a function that gathers a divided array on all devices, and in the backward pass sums
    the gradient over all devices before it is divided by `sharding`. The sum comes first, since XLA
    would gather rows to compute each part of the gradient by itself.
    """
    constrain = jax.lax.with_sharding_constraint
    gather = jax.custom_vjp(lambda part: constrain(part, everywhere))
    gather.defvjp(
        lambda part: (gather(part), None),
        lambda _, gradient: (constrain(constrain(gradient, everywhere), sharding),),
    )
    return gather


def rows_are_dealt() -> bool:
    """Whether what is traced is for rows on several devices."""
    return bool(_parts.get())
