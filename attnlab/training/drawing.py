"""First parameters, drawn without a program of their own.

A jitted `init` is one program with the code of every draw in it, which takes longer to compile than a
training step, and no two models share it. Here each draw is a program by itself, compiled once for
each shape and distribution: GPT-2's 12 layers of 12 need a dozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.extend.core import Jaxpr, Var, jaxpr_as_fun

Drawn = TypeVar("Drawn")


def first_params(init: Callable[..., Drawn], *given: Any) -> Drawn:
    """`init(*given)`, a tree of arrays: traced, and what the result needs of it computed operation by
    operation. What else `init` computes, such as the pass through the model in which Flax finds its
    parameters, is left out. Equal to `jax.jit(init)(*given)` up to rounding.
    """
    closed, shape = jax.make_jaxpr(init, return_shape=True)(*given)
    compute = jaxpr_as_fun(type(closed)(_needed(closed.jaxpr), closed.consts))
    found: Drawn = jax.tree.unflatten(jax.tree.structure(shape), compute(*jax.tree.leaves(given)))
    return found


def _needed(jaxpr: Jaxpr) -> Jaxpr:
    """Without the equations on which no result depends."""
    wanted = {one for one in jaxpr.outvars if isinstance(one, Var)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            kept.append(equation)
            wanted.update(one for one in equation.invars if isinstance(one, Var))
    return jaxpr.replace(eqns=kept[::-1])
