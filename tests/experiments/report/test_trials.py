"""Measures that are no scores: their values from records, as a measure and in contrasts of a
claim.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.define.derived import COUNTED, PLAIN, forms
from attnlab.experiments.report import collect, report
from attnlab.experiments.report.contents import Contents
from attnlab.experiments.report.trials import COSTS, side_by_side, value
from tests.experiments.report.tabled import main
from tests.experiments.synthetic import APART, claim, end, lines, start, sweep, workdir

STEPS_TO = "steps_to(loss<=1.5)"  # a: at step 9, b: at the last, 12, c: never


def reported(directory: Path, *contrasts: tuple[dict[str, float], str], **changes: Any) -> Contents:
    """The report of a sweep with a claim of contrasts (weights, what on)."""
    listed = [{"weights": weights, "at_least": 0.0, "on": on} for weights, on in contrasts]
    stated = {"statement": "It is so.", "contrasts": listed} if listed else None
    return report.write(sweep(directory, APART, claim=stated, **changes), stream=io.StringIO())


def test_values_from_records(tmp_path: Path) -> None:
    records = collect(sweep(tmp_path, APART)).trials
    trials = {(run.candidate.variant, run.seed): run for run in records}
    found = {name: value(trials["a", 1], "test", name) for name in forms()}
    assert found == {
        "step_seconds": 0.02,
        "seconds": 30.5,
        "peak_bytes": 300 * 2**20 + 1,
        "parameters": 12346,
        "flops": 2.5e9,
        STEPS_TO: 9,
        "seconds_to(loss<=1.5)": pytest.approx(9 * 0.02),
        "flops_to(loss<=1.5)": 9 * 2.5e9,
    }
    assert value(trials["b", 0], "test", STEPS_TO) == 12
    assert value(trials["c", 0], "test", STEPS_TO) is None
    assert value(trials["a", 0], "test", "exact") == 0.90
    assert value(trials["a", 0], "test", "steps_to(exact>=0.85)") == 12
    assert set(COSTS) == set(PLAIN) > set(COUNTED)


def test_a_trial_that_did_not_end_well_has_none(tmp_path: Path) -> None:
    record = collect(sweep(tmp_path, {"a": (float("nan"), 0.9)})).trials[0]
    assert record.seen.state == "diverged" and value(record, "test", "step_seconds") is None
    assert value(record, "test", STEPS_TO) is None
    assert record.cost.step_seconds is not None


@pytest.mark.quick
def test_a_claim_on_time_to_a_score(tmp_path: Path) -> None:
    """b - a is 3 steps for every seed, or so: c never gets there, so that what is said of it stays
    open.
    """
    contents = reported(tmp_path / "known", ({"b": 1.0, "a": -1.0}, "seconds_to(loss<=1.5)"))
    words = "a better than b: b - a >= 0 (seconds_to(loss<=1.5))"
    assert contents.verdict.contrasts[0].text == words
    decision = contents.verdict.contrasts[0].found
    # 0.03 (1 + seed), of four seeds
    assert decision is not None and decision.mean == pytest.approx(0.03 * 2.5)
    assert contents.outcome == "supported (4 seeds)"
    contents = reported(tmp_path / "never", ({"c": 1.0, "a": -1.0}, STEPS_TO))
    assert contents.outcome.startswith("undecided")
    assert "c: seed 0 never reached loss <= 1.5 on the validation split" in contents.outcome


def test_a_claim_on_speed_beside_one_on_the_measure(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    reported(directory, ({"a": 1.0, "b": -1.0}, ""), ({"b": 1.0, "a": -1.0}, "step_seconds"))
    for variant, took in (("a", (10, 11, 14, 19)), ("b", (30, 32, 31, 33))):  # ms, by seed
        for seed, each in enumerate(took):
            pace = {"step": 3, "step_seconds": each / 1000}
            lines(workdir(directory, variant, seed) / "timing.jsonl", [pace])
    contents = report.write(directory, stream=io.StringIO())
    assert contents.outcome == "supported (4 seeds)" and contents.comparison.basis.metric == "exact"
    notes = " ".join(main(contents).notes)
    assert "12 trials of this sweep were at work side by side on one machine" in notes
    assert "--slots=1" in (directory / "report.md").read_text()
    assert "--slots=1" in (directory / "report.html").read_text()


@pytest.mark.parametrize(
    ("weights", "outcome"),
    [({"bb": 1.0, "a": -1.0}, "supported"), ({"a": 1.0, "bb": -1.0}, "not supported")],
)
def test_counts_need_no_interval(tmp_path: Path, weights: dict[str, float], outcome: str) -> None:
    """Every seed has the same number of parameters: that is what is claimed, and no spread is
    needed to judge it.
    """
    smaller, scores = claim(weights, on="parameters"), {"a": (0.9, 0.8), "bb": (0.1, 0.2)}
    contents = report.write(sweep(tmp_path, scores, claim=smaller), stream=io.StringIO())
    assert contents.verdict is not None and contents.verdict.outcome == outcome


@pytest.mark.quick
def test_a_derived_measure_is_the_measure_of_a_sweep(tmp_path: Path) -> None:
    """Compared like any other; a row that lacks a seed says why; the page is made of it."""
    contents = reported(tmp_path, measure={"metric": STEPS_TO, "mode": "min"})
    a, b, c = contents.comparison.rows
    assert a.values == dict.fromkeys(range(4), 9) and b.values == dict.fromkeys(range(4), 12)
    assert c.values == {}
    assert c.missing[0] == "seed 0 never reached loss <= 1.5 on the validation split"
    assert main(contents).title == f"{STEPS_TO} of the trials, lower is better"
    table = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["mean"] for row in table] == [9, 12, None]


def test_how_many_were_at_work_at_once(tmp_path: Path) -> None:
    """Two after each other on one machine, a third on another at the same time; a process that died
    counts up to what it last told.
    """
    directory = sweep(tmp_path, {"a": (0.9, 0.8, 0.7)})
    times = (("one", 0.0, 10.0), ("one", 10.0, 20.0), ("other", 0.0, 20.0))
    for seed, (host, begin, stop) in enumerate(times):
        records = [start(begin, host=host), end(stop, None)]
        lines(workdir(directory, "a", seed) / "events.jsonl", records)
    assert side_by_side(collect(directory).trials) == 1
    records = [start(5.0, host="one"), {"event": "step", "time": 12.0, "step": 4}]
    lines(workdir(directory, "a", 2) / "events.jsonl", records)
    assert side_by_side(collect(directory).trials) == 2
    assert side_by_side(()) == 0
