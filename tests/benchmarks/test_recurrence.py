"""The step of the LSTM's benchmark multiplies what is said, and learns."""

import jax
import pytest

from benchmarks import recurrence
from benchmarks.step_profile import matmul_operations

SMALL = {"width": 8, "layers": 1, "rows": 3, "steps": 5, "vocabulary": 20}


def test_the_step_multiplies_what_is_said_and_learns() -> None:
    step, state, batch = recurrence.training(SMALL)
    jaxpr = jax.make_jaxpr(step)(state, batch).jaxpr
    assert matmul_operations(jaxpr) == recurrence.products(SMALL)
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
    words = f"{100 * recurrence.products(recurrence.SIZES) / 0.2 / 1e12:.0f} % of the peak"
    assert share[3] == words
    assert recurrence.products(recurrence.SIZES) == pytest.approx(
        3 * 2 * 700 * (2 * 8 * 650**2 + 650 * 10000)
    )
    assert len(recurrence.table(recurrence.SIZES, {"attnlab": found["attnlab"]})) == 2
