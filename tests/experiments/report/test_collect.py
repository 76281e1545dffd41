"""Reading a sweep's folder: known numbers come back, half-done trials have what they have, damage
is one line.
"""

import math
import shutil
from pathlib import Path

import pytest

from attnlab.experiments.report.collect import Cost, collect
from tests.experiments.synthetic import SCORES, end, lines, start, sweep, workdir
from tests.refusals import check_refused


@pytest.mark.quick
def test_what_was_written_comes_back(tmp_path: Path) -> None:
    records = collect(sweep(tmp_path))
    trials = [(one.candidate.variant, one.seed) for one in records.trials]
    assert trials == [(variant, seed) for variant in SCORES for seed in range(4)]
    exact = [one.scores["test"]["exact"] for one in records.trials]
    assert exact == [value for values in SCORES.values() for value in values]
    second = records.trials[1]
    assert second.seen.state == "done" and second.seen.step == 12 and second.seen.total == 12
    assert second.seen.attempts == 1
    assert second.cost == Cost(0.02, first_step_seconds=4.5, peak_bytes=300 * 2**20 + 1)
    assert list(second.series("valid", "loss")) == [3, 6, 9, 12]
    assert {example: list(maps) for example, maps in second.shown.pictures.items()} == {
        0: ["decoder_0-cross_attention", "decoder_0-self_attention"],
        1: ["decoder_0-cross_attention"],
    }
    assert [one.answer for one in second.shown.answers] == ["1967-05-03", "1968-05-04"]
    assert second.logged.pace[3] == pytest.approx(0.021)
    assert second.manifest is not None and second.manifest.config["seed"] == 1
    assert "bleu_signature" not in second.scores["test"]
    assert records.choice is not None and records.complete and records.wanted == records.trials


def test_time_and_memory_of_a_trial_of_several_attempts(tmp_path: Path) -> None:
    """The median step, the first first step, the most memory of any process, and as many attempts
    as began, ended or not.
    """
    folder = workdir(sweep(tmp_path, {"a": (0.9, 0.8)}), "a", 0)
    pace = ((3, 0.9), (6, 0.01), (9, 0.02))
    timing = [{"step": step, "time": 1.0, "step_seconds": took} for step, took in pace]
    lines(folder / "timing.jsonl", timing)
    begun = start(100.0)
    costs = {"peak_bytes": 9 * 2**30, "first_step_seconds": None}
    stopped = end(130.5, 2.0, state="interrupted", **costs)
    last = end(130.5, 3.0, peak_bytes=2**30, first_step_seconds=7.5)
    killed = {**last, "seconds": None, "first_step_seconds": 8.0}
    lines(folder / "events.jsonl", [begun, stopped, begun, begun, last, begun, killed])
    record = collect(tmp_path).trials[0]
    assert record.cost == Cost(step_seconds=0.02, first_step_seconds=7.5, peak_bytes=9 * 2**30)
    assert (record.seen.state, record.seen.attempts, record.seen.seconds) == ("done", 4, 5.0)


def test_trials_that_never_began_are_empty(tmp_path: Path) -> None:
    """A folder with a plan alone is a sweep of which nothing is there yet."""
    sweep(tmp_path / "whole", final=False)
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "plan.json").write_bytes((tmp_path / "whole" / "plan.json").read_bytes())
    records = collect(tmp_path / "only")
    first = records.trials[0]
    assert len(records.trials) == 12 and not records.complete and records.choice is None
    assert first.seen.state == "pending" and first.cost == Cost()
    assert first.scores == {"valid": {}, "test": {}} and first.logged.curve == ()
    assert first.manifest is None and first.shown.pictures == {} and first.shown.answers == ()


def test_complete_only_when_every_chosen_trial_is_scored(tmp_path: Path) -> None:
    assert not collect(sweep(tmp_path / "no choice", final=False)).complete
    directory = sweep(tmp_path / "all", {"a": (0.9, math.nan), "b": (0.8, 0.7)})
    assert collect(directory).complete  # one diverged: nothing more will come of it
    (workdir(directory, "b", 1) / "results.json").unlink()
    assert not collect(directory).complete
    shutil.rmtree(workdir(directory, "b", 1))  # as a seed that was added after the choice
    assert not collect(directory).complete


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"a": (0.9, 0.8)})
    odd = '{"exact": 0.5, "loss": Infinity, "perplexity": NaN, "whole": true}'
    (workdir(directory, "a", 0) / "results.json").write_text(odd)
    assert collect(directory).trials[0].scores["test"] == {"exact": 0.5}


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("plan.json", None, "holds no sweep"),
        ("plan.json", "{", "plan.json is damaged"),
        ("choice.json", "[]", "choice.json is damaged"),
        ("trials/a-0a1b2c3d/seed0/results.json", "{", "results.json is damaged"),
        ("trials/a-0a1b2c3d/seed0/valid.json", "[1]", "valid.json is damaged"),
        ("trials/a-0a1b2c3d/seed0/metrics.jsonl", "x\n", "metrics.jsonl, line 1 is no record"),
        ("looks.jsonl", '{"event": "test"}\n', "looks.jsonl, line 1 is no record"),
        ("trials/a-0a1b2c3d/seed0/manifest.json", "{}", "manifest.json is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: str | None, words: str) -> None:
    directory = sweep(tmp_path, {"a": (0.9, 0.8), "b": (0.7, 0.6)})
    if content is None:
        (directory / file).unlink()
    else:
        (directory / file).write_text(content)
    check_refused(words, collect, directory)
