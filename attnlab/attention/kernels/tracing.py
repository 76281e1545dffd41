"""Functions whose arrays are all arguments, for loops with a custom derivative.

A score closes over parameters, a mask over segment ids. A `jax.custom_vjp` gives such arrays no
gradient, or fails on them. Here they become arguments.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun


def hoisted(function: Callable[..., Any], *examples: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Traces a function with example arguments, and returns a function `pure(arrays, *arguments)`
    that computes the same but closes over nothing, and the list of `arrays` that the original
    closes over. `pure` equals it for arguments like the examples.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    tree = jax.tree.structure(shape)

    def pure(arrays: list[Any], *arguments: Any) -> Any:
        return jax.tree.unflatten(
            tree, jaxpr_as_fun(type(closed)(closed.jaxpr, arrays))(*jax.tree.leaves(arguments))
        )

    return pure, list(closed.consts)


def split(tree: Any) -> tuple[Any, Any]:
    """Splits a tree of arrays into two trees of the same structure: one of the floating-point
    arrays with None for all others, and one of the other arrays with None for the floating-point
    ones.
    """

    def part(floating: bool) -> Any:
        return jax.tree.map(
            lambda x: x if jnp.issubdtype(x.dtype, jnp.floating) == floating else None, tree
        )

    return part(True), part(False)


def joined(floats: Any, fixed: Any) -> Any:
    """Joins the two trees that `split` gives to one."""
    return jax.tree.map(
        lambda x, y: y if x is None else x, floats, fixed, is_leaf=lambda x: x is None
    )


def with_gradient(forward: Callable[..., Any], backward: Callable[..., Any], arrays: Any) -> Any:
    """Returns the first of the two results of `forward(arrays)`. Its gradients are those that
    `backward(arrays, residuals, grad)` computes anew, so nothing of `forward` is stored but its
    second result, the residuals.

    Args:
      forward: makes a tree of arrays the value and the residuals.
      backward: returns the gradients of the floating-point arrays of that tree, as `split` gives
        them.
      arrays: the tree.
    """

    @jax.custom_vjp
    def run(floats: Any, fixed: Any) -> Any:
        return forward(joined(floats, fixed))[0]

    def first(floats: Any, fixed: Any) -> tuple[Any, Any]:
        value, residuals = forward(joined(floats, fixed))
        return value, (floats, fixed, residuals)

    def second(stored: Any, grad: Any) -> tuple[Any, None]:
        floats, fixed, residuals = stored
        return like(backward(joined(floats, fixed), residuals, grad), floats), None

    run.defvjp(first, second)
    return run(*split(arrays))


def zeros(tree: Any, dtype: Any) -> Any:
    """Zeros of a dtype, shaped like a tree of arrays, for sums of gradients."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), tree)


def added(total: Any, term: Any) -> Any:
    """Adds two trees, in the dtype of the first."""
    return jax.tree.map(lambda x, y: x + y.astype(x.dtype), total, term)


def like(tree: Any, example: Any) -> Any:
    """Returns a tree with the dtypes of `example`."""
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, example)
