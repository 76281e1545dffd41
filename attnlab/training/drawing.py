"""First parameters, drawn without a program of their own.

A jitted `init` is one program with the code of every draw in it, which takes longer to compile than a
training step, and no two models share it. Here each draw is a program by itself, compiled once for
each shape and distribution: GPT-2's 12 layers of 12 need a dozen.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax.extend.core import Jaxpr, Literal, Var, jaxpr_as_fun

from attnlab.training.mesh import place
from attnlab.training.step import Tree

Drawn = TypeVar("Drawn")


def first_params(init: Callable[..., Drawn], *arguments: Tree, shardings: Tree = None) -> Drawn:
    """Returns `init(*arguments)`, a tree of arrays: traced, and what the result needs of it computed
    operation by operation. What else `init` computes, such as the pass through the model in which
    Flax finds its parameters, is left out. Equal to `jax.jit(init)(*arguments)` up to rounding.

    With `shardings`, a tree like the result, each array is placed as soon as it is drawn, so that no
    more than one is ever whole: the same bits.
    """
    return evaluate_traced(jax.jit(init).trace(*arguments), *arguments, shardings=shardings)


def evaluate_traced(traced: jax.stages.Traced, *arguments: Tree, shardings: Tree = None) -> Tree:
    """Returns the results (a tree of arrays) of a traced function at the `arguments`, without
    computing its unused equations; with `shardings`, one for each result, computes and places one
    result after another, so that only one is ever whole.
    """
    closed, shape = traced.jaxpr, traced.out_info
    needed, arrays = _without_unused(closed.jaxpr), jax.tree.leaves(arguments)

    def evaluate_results(results: list[Var | Literal]) -> list[jax.Array]:
        part = _without_unused(needed.replace(outvars=results))
        return jaxpr_as_fun(type(closed)(part, closed.consts))(*arrays)

    if shardings is None:
        leaves = evaluate_results(needed.outvars)
    else:
        pairs = zip(needed.outvars, jax.tree.leaves(shardings), strict=True)
        leaves = [place(evaluate_results([result])[0], sharding) for result, sharding in pairs]
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)


def _without_unused(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program without the equations on which no result depends; those with effects
    stay.
    """
    needed = {var for var in jaxpr.outvars if isinstance(var, Var)}
    equations = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            equations.append(equation)
            needed.update(var for var in equation.invars if isinstance(var, Var))
    return jaxpr.replace(eqns=equations[::-1])
