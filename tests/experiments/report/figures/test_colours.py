"""Who stands out, and in which colour."""

import dataclasses
import math
from pathlib import Path

import pytest

from attnlab.experiments.report.figures.colours import legend, looks, ranked, reach
from tests.experiments.report.tabled import compared


@pytest.mark.quick
def test_rows_are_ranked_by_their_mean_and_the_direction_of_the_measure(tmp_path: Path) -> None:
    scores = {"a": (0.5, 0.7), "b": (0.9, 0.8), "c": (math.nan, math.nan), "d": (0.1, 0.2)}
    best, worst = [1, 0, 3, 2], [3, 0, 1, 2]
    for metric, mode, order in (
        ("exact", "max", best),
        ("loss", "min", best),
        ("exact", "min", worst),
    ):
        measure = {"metric": metric, "mode": mode}
        assert ranked(compared(tmp_path / f"{metric} {mode}", scores, measure=measure)) == order


def test_the_first_and_the_baseline_stand_out_of_many(tmp_path: Path) -> None:
    found = compared(tmp_path, {f"v{place}": (0.9 - 0.01 * place,) for place in range(20)})
    drawn = looks(found, "v15")
    assert [look.kind for look in drawn[:8]] == [*(f"c{place}" for place in range(7)), "other"]
    assert drawn[15].kind == "base" and sum(look.shown for look in drawn) == 8
    text = legend(found, drawn)
    words = ("v0<", "v15 (baseline)", "in grey: 12 others", "v19<")
    places = [text.index(name) for name in words]
    assert places == sorted(places)


def test_an_axis_reaches_as_far_as_seeds_and_not_as_far_as_any_interval(tmp_path: Path) -> None:
    """Seeds from 0.5 to 0.6: the axis goes 0.1 further on either side at most."""
    found = compared(tmp_path, {"a": (0.5, 0.6), "b": (0.52, 0.53)})
    seeds = (0.5, 0.6)
    for ends, reached in (((-3.0, 4.0), (0.4, 0.7)), ((0.51, 0.59), seeds), (None, seeds)):
        rows = tuple(
            dataclasses.replace(row, summary=dataclasses.replace(row.summary, interval=ends))
            for row in found.rows
        )
        values = reach(dataclasses.replace(found, rows=rows), [0, 1])
        assert (min(values), max(values)) == pytest.approx(reached)
    assert reach(found, []) == []


@pytest.mark.quick
def test_before_the_choice_nobody_is_the_baseline(tmp_path: Path) -> None:
    scores = {"a": (math.nan,), "b": (0.7,), "c": (0.8,)}
    found = compared(tmp_path, scores, tuned={0.1: 0.0, 0.2: 0.15}, final=False)
    assert [look.kind for look in looks(found, "b")] == ["other", "other", "c1", "c3", "c0", "c2"]
    empty = compared(tmp_path / "none", {"a": (math.nan,), "b": (math.nan,)}, final=False)
    # their curves are all there is
    assert [look.kind for look in looks(empty, "b")] == ["c0", "c1"]
