"""Cost against quality: the front, and which costs are drawn."""

import dataclasses
import re
from pathlib import Path

import pytest

from attnlab.experiments.report.comparison import Comparison
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.costs import costs, front, row_costs
from tests.experiments.report.tabled import compared, drawn
from tests.experiments.synthetic import STEPS


@pytest.mark.quick
@pytest.mark.parametrize(
    ("points", "mode", "found"),
    [
        ([(1.0, 0.5), (2.0, 0.4), (3.0, 0.9), (3.0, 0.8)], "max", [0, 2]),
        ([(1.0, 0.5), (2.0, 0.4), (3.0, 0.9), (3.0, 0.3)], "min", [0, 1, 3]),
        ([(2.0, 0.5), (1.0, 0.5)], "max", [1]),
        ([(1.0, 0.5), (1.0, 0.5)], "max", [0, 1]),
        ([], "max", []),
    ],
)
def test_the_front_is_unbeaten(
    points: list[tuple[float, float]], mode: str, found: list[int]
) -> None:
    assert front(points, mode) == found


def apart(directory: Path) -> Comparison:
    """Three rows, of which each costs ten times the one before, and the dearest is not the best."""
    found = compared(directory, {"a": (0.5, 0.6), "b": (0.8, 0.9), "c": (0.7, 0.8)}, claim=None)
    rows = []
    for place, row in enumerate(found.rows):
        costs = {"parameters": 10 ** (4 + place), "flops": 10.0 ** (9 + place)}
        candidate = dataclasses.replace(row.candidate, **costs)
        rows.append(dataclasses.replace(row, candidate=candidate))
    return dataclasses.replace(found, rows=tuple(rows))


@pytest.mark.quick
def test_every_cost_that_differs_has_a_panel_with_its_front(tmp_path: Path) -> None:
    found = apart(tmp_path)
    text = drawn(costs(found, looks(found, "a")))
    # pace, memory and steps are equal
    labels = re.findall(r'aria-label="([^"]*)"', text)
    assert labels == ["exact by parameters", "exact by FLOPs per step"]
    assert "the same within half a per cent: seconds of training steps, peak memory, MiB." in text
    assert ">100 k</text>" in text and text.count('class="front"') == 2
    assert text.count('class="ring dot"') == 4
    assert "b: exact 0.8500, 100 k parameters" in text and "(baseline)" in text


def test_what_a_row_costs(tmp_path: Path) -> None:
    """Seeds 0 and 1 take 10 and 20 ms a step; the memory is that of the larger."""
    row = apart(tmp_path).rows[1]
    taken = row_costs(row)
    assert taken["FLOPs of training"] == STEPS * 1e10
    assert taken["seconds of training steps"] == pytest.approx(0.015 * STEPS)
    assert taken["peak memory, MiB"] == pytest.approx(300, rel=1e-6)
    assert row_costs(dataclasses.replace(row, records=()))["peak memory, MiB"] == 0


def test_equal_costs_or_one_row_are_no_section(tmp_path: Path) -> None:
    found = compared(tmp_path, {"a": (0.5, 0.6), "b": (0.8, 0.9)})
    assert costs(found, looks(found, "a")) is None
    candidates = dataclasses.replace(apart(tmp_path / "open"), frozen=False)
    assert costs(candidates, looks(candidates, "a")) is None
    one = dataclasses.replace(found, rows=found.rows[:1])
    assert costs(one, looks(one, "a")) is None
