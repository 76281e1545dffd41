"""Gradients of the code beside those of its float64 oracle, along one random direction each."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tests.attention.cases import TOLERANCE


def inner(tree: Any, other: Any) -> float:
    """The sum of the products of two trees of arrays, in float64."""
    pairs = zip(*map(jax.tree.leaves, (tree, other)), strict=True)
    return sum(float((np.asarray(a, np.float64) * b).sum()) for a, b in pairs)


def assert_slopes(
    gradients: Sequence[Any], given: Sequence[Any], total: Callable[..., float]
) -> None:
    """Raises unless each gradient, along a random direction, is the central difference of the
    oracle.

    Args:
      gradients: for each argument, a tree of arrays.
      given: the arguments in float64.
      total: the oracle's number that the gradients are of.
    """
    for number, gradient in enumerate(gradients):
        rng = np.random.default_rng(7)
        direction = jax.tree.map(lambda a, rng=rng: rng.normal(size=np.shape(a)), given[number])
        ends = []
        for step in (1e-6, -1e-6):
            moved = jax.tree.map(lambda a, d, step=step: a + step * d, given[number], direction)
            ends.append(total(*given[:number], moved, *given[number + 1 :]))
        size = inner(*(jax.tree.map(np.abs, tree) for tree in (gradient, direction)))
        off = abs(inner(gradient, direction) - (ends[0] - ends[1]) / 2e-6)
        assert off <= TOLERANCE["gradient"] * max(1.0, size), (number, off, size)
