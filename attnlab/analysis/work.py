"""The work of a program: XLA's own count of the program as it is lowered, loops counted as often as
they run.

XLA counts the body of a loop once, whatever its length. The scans of the program are known from its
jaxpr, so that

    flops(f) = XLA(f) + sum over scans in f of (length x flops(body) - copies x XLA(body))

where `copies` of the body (one, unless the scan is unrolled) are in XLA's count of f already. The
program is counted as it is lowered for the CPU, before XLA fuses it: the same number on every
machine. A multiplication and an addition are two. Exponentials, logarithms, tanh, roots, powers and
the like are no FLOPs; XLA counts them apart, as "transcendentals", one for each element, and loops
multiply them in the same way. A softmax so takes 4 for each score (largest, difference, sum,
quotient), and a transcendental. Comparisons and selections count too: 2 for each score that a mask
may hide. The running sums of n numbers are n (n - 1), though no program computes them so: `sums`
says how many there are too many. The most expensive side of a branch counts; the body of a loop of
unknown length counts once.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

RUNNING = ("cumsum", "cumprod", "cummax", "cummin")


@dataclasses.dataclass(frozen=True)
class Work:
    """What a call of a program costs.

    Attributes:
      flops: additions, multiplications and the like.
      transcendentals: exponentials, logarithms, tanh, roots, powers and the like, elements of them.
      loops: places in the program that repeat until a condition holds; each was counted once, so
        that both counts are too low.
      idle: of a training step, the paths of the parameters that get no gradient, see
        `attnlab.training.gradients`, and are no running averages, which the step moves.
      sums: how many of the FLOPs are too many, since a running sum of n numbers takes 2 n.
    """

    flops: float
    transcendentals: float
    loops: int = 0
    idle: tuple[str, ...] = ()
    sums: float = 0.0


def flops(function: Callable[..., Any], *arguments: Any) -> float:
    """The FLOPs of `work` alone."""
    return work(function, *arguments).flops


def work(function: Callable[..., Any], *arguments: Any) -> Work:
    """Counts the FLOPs, transcendentals and loops of unknown length of one call of `function`, for
    arguments (arrays, or their shapes) of these shapes.
    """
    traced = jax.jit(function).trace(*arguments)
    counted = _xla(traced.lower()) + _beyond(traced.jaxpr.jaxpr)
    operations, transcendentals, sums = map(float, counted)
    return Work(operations, transcendentals, _unknown(traced.jaxpr.jaxpr), sums=sums)


def _beyond(jaxpr: jex.Jaxpr) -> np.ndarray:
    """Returns three corrections [3] to XLA's count of work in a jaxpr: missing FLOPs and missing
    transcendentals of `scan` iterations, which it counts once, and FLOPs that it counts too many
    for running sums (a `while` stays counted once).
    """
    total = np.zeros(3)
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "scan":
            body = equation.params["jaxpr"]
            once = _xla(_lowered(body))
            total += (
                equation.params["length"] * (once + _beyond(body.jaxpr))
                - _copies(**equation.params) * once
            )
        elif name == "cond":
            sides = [_beyond(branch.jaxpr) for branch in equation.params["branches"]]
            choices = equation.params.get("branches_platforms")  # of those that platforms choose
            if choices is not None:
                sides = [sides[[names is None or "cpu" in names for names in choices].index(True)]]
            total += np.max(sides, axis=0, initial=0.0)
        elif name in RUNNING:
            numbers: Any = equation.invars[0].aval
            total[2] += numbers.size * max(0, numbers.shape[equation.params["axis"]] - 3)
        elif name != "pallas_call":
            total += sum(map(_beyond, _inner(equation.params)), np.zeros(3))
    return total


def _unknown(jaxpr: jex.Jaxpr) -> int:
    """How many loops of unknown length stand in a jaxpr."""
    inside = sum(_unknown(inner) for equation in jaxpr.eqns for inner in _inner(equation.params))
    return inside + sum(equation.primitive.name == "while" for equation in jaxpr.eqns)


def _copies(length: int, unroll: int, **_: Any) -> int:
    """Returns how many copies of its body the program of a scan has: `unroll` in the loop, and the
    remainder after it.
    """
    if unroll == 0:
        return length
    return (unroll if length >= unroll else 0) + length % unroll


def _inner(params: dict[str, Any]) -> Iterator[jex.Jaxpr]:
    """Yields the jaxprs among the parameters of an equation (of jit, remat, custom derivatives)."""
    for value in params.values():
        for entry in value if isinstance(value, tuple | list) else (value,):
            # what is closed over constants is of another class in some versions of jax
            inner = getattr(entry, "jaxpr", entry)
            if isinstance(inner, jex.Jaxpr):
                yield inner


def _lowered(body: Any) -> Any:
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
    return jax.jit(jex.jaxpr_as_fun(body)).lower(*shapes)


def _xla(lowered: Any) -> np.ndarray:
    """XLA's count: FLOPs and transcendental operations, and 0, [3] float64."""
    counted = lowered.cost_analysis() or {}
    return np.array([counted.get("flops", 0.0), counted.get("transcendentals", 0.0), 0.0])
