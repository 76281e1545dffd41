"""Every way of running layers takes the same step, and has a row in the table."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import deep_stacks
from benchmarks.deep_stacks import WAYS, measured, programs

pytestmark = pytest.mark.full  # that the ways agree: tests/systems/transformers/test_stack.py


def test_every_way_takes_the_same_step_but_for_dropout() -> None:
    steps = []
    for way in ("written out", "scan, remat"):
        _, forward, gradient, _, (params, _, tokens, _) = programs(2, 32, 8, 2, 16, WAYS[way])
        both = jax.jit(lambda *given: (forward(*given, None), gradient(*given, None)))  # noqa: B023
        alone, (loss, slopes) = both(params, tokens)
        np.testing.assert_allclose(alone, loss, rtol=1e-6)
        steps.append((loss, slopes["layer_1"]["attention"]["out"]["kernel"]))
    for found, expected in zip(*steps, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_a_row_for_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: WAYS[name] for name in ("written out", "scan")}
    monkeypatch.setattr(deep_stacks, "WAYS", few)
    rows = measured(1, 32, 8, 2, 16, 1)
    assert [row[0] for row in rows] == list(few)
    assert all(figure > 0 for row in rows for figure in row[1:])
