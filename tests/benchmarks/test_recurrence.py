"""What the LSTM's benchmark compares is comparable, and its step learns."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import jax
import pytest

from benchmarks import recurrence

SMALL = {"width": 8, "layers": 1, "rows": 3, "steps": 5, "vocabulary": 20}


def test_both_sides_have_the_same_sizes() -> None:
    other = ast.parse(Path(recurrence.__file__).with_name("torch_recurrence.py").read_text())
    (sizes,) = (  # read, not imported: torch need not be installed here
        node.value
        for node in other.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SIZES"
    )
    assert ast.literal_eval(sizes) == recurrence.SIZES


def multiplied(jaxpr: Any, times: int = 1) -> int:
    """FLOPs of all matrix products, those in loops as often as they run."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            ((over, _), _), shape = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
            total += (
                2
                * times
                * math.prod(eqn.outvars[0].aval.shape)
                * math.prod(shape[axis] for axis in over)
            )
        length = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        total += sum(
            multiplied(one.jaxpr, times * length)
            for one in eqn.params.values()
            if hasattr(one, "jaxpr")
        )
    return total


def test_the_step_multiplies_what_is_said_and_learns() -> None:
    step, state, batch = recurrence.training(SMALL)
    assert multiplied(jax.make_jaxpr(step)(state, batch).jaxpr) == recurrence.products(SMALL)
    first = None
    for _ in range(20):
        state, sums = step(state, batch)
        first = first if first is not None else float(sums["loss"])
    assert float(sums["loss"]) < 0.9 * first  # type: ignore[operator]
    assert [leaf.shape for leaf in jax.tree.leaves(state.remembered)] == [(3, 8)] * 2


def test_the_table_says_how_many_times_faster() -> None:
    found = {
        "attnlab": {"seconds_per_step": [0.2, 0.3, 0.1], "flops_per_second": [1e12] * 3},
        "versus": {"seconds_per_step": [0.4] * 3},
    }
    step, share = recurrence.table(recurrence.SIZES, found)
    assert step[1:] == ("200", "torch's nn.LSTM: 400", "2.00 times the speed")
    assert (
        share[3] == f"{100 * recurrence.products(recurrence.SIZES) / 0.2 / 1e12:.0f} % of the peak"
    )
    assert recurrence.products(recurrence.SIZES) == pytest.approx(
        3 * 2 * 700 * (2 * 8 * 650**2 + 650 * 10000)
    )
    assert len(recurrence.table(recurrence.SIZES, {"attnlab": found["attnlab"]})) == 2
