"""The head of a report: what a reader must know before any number, the gravest first, in every
form.
"""

import io
import json
import math
from pathlib import Path

import pytest

from attnlab.experiments.define.search import Search, log_uniform
from attnlab.experiments.report import report
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.warnings import KINDS
from tests.experiments.report.tabled import cells, main, warned
from tests.experiments.synthetic import (
    TIME,
    budget,
    changing,
    edit,
    edit_candidates,
    end,
    lines,
    look,
    met,
    start,
    sweep,
    workdir,
)

TWO = {"a": (0.9, 0.8, 0.85), "b": (0.5, 0.4, 0.45)}
PEAKS = {0.001: 1.0, 0.003: 0.0, 0.01: 2.0}


@pytest.mark.quick
def test_a_sound_sweep_has_none(tmp_path: Path) -> None:
    assert gather(sweep(tmp_path, TWO)).warnings == ()


@pytest.mark.quick
def test_they_come_first_in_every_form_and_the_gravest_first(tmp_path: Path) -> None:
    scores, settings = {**TWO, "b": (0.5, math.nan, 0.4)}, {"b": {"training.clip": 2.0}}
    directory = sweep(tmp_path, scores, tuned={0.001: 1.0, 0.003: 0.0}, settings=settings)
    out = io.StringIO()
    contents = report.write(directory, stream=out)
    kinds = [one.kind for one in contents.warnings]
    assert kinds == sorted(kinds, key=list(KINDS).index)
    assert kinds == ["held equal", "lost", "edge", "seeds"]
    words = "Not held equal: training.clip - (a), 2.0 (b)."
    terminal, text = out.getvalue(), (directory / "report.md").read_text()
    page = (directory / "report.html").read_text()
    data = json.loads((directory / "report.json").read_text())
    assert terminal.index(f"warning: {words}") < terminal.index("exact on")
    assert text.index(words) < text.index("Claim:")
    assert page.index(words) < page.index('<p class="verdict')
    assert data["warnings"][0] == {"kind": "held equal", "text": words}
    assert next(iter(data)) == "warnings"


def test_lost_and_accepted_trials(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {**TWO, "b": (0.5, math.nan, 0.4)})
    expected = ["1 of 6 reported trials has no score: b: seed 1 diverged."]
    assert warned(gather(directory), "lost") == expected
    lost = dict.fromkeys(("b-1/seed0", "b-1/seed1"), "no space left")
    with changing(directory / "choice.json") as choice:
        choice["chosen"]["b"]["accepted"] = lost
    words = "2 trials that failed or were stopped (b-1/seed0, b-1/seed1), which was accepted."
    assert f"b was chosen without {words}" in warned(gather(directory), "lost")


def test_a_budget_that_was_missed(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO, budget=budget("a"))
    edit_candidates(directory, budget=met(110, knob="system.decoder", accepted=True))
    off = "by +10 %, which was accepted"
    expected = [f"The budget (parameters) is not matched: a {off}, b {off}."]
    assert warned(gather(directory), "budget") == expected


def test_mixed_code_and_code_changed_on_the_way(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    edit(workdir(directory, "b", 1) / "manifest.json", code={"revision": "e" * 40, "dirty": True})
    word = {"time": TIME, "by": "me", "command": [], "step": 6}
    word["changed"] = {"mine": {"was": "1", "now": "2"}}
    own = {"modules": {}, "files": {}, "accepted": [word]}
    edit(workdir(directory, "a", 0) / "manifest.json", own_code=own)
    mixed, changed = warned(gather(directory), "code")
    words = "ffffffffffff (5 trials), eeeeeeeeeeee with changes (b seed 1)."
    assert mixed == f"The reported trials were trained by 2 versions of the code: {words}"
    words = "while a seed 0 was trained (mine, after step 6), which was accepted."
    assert changed == f"The user's own code changed {words}"


@pytest.mark.parametrize(("tree", "number"), [("1" * 40, 0), ("2" * 40, 2)])
def test_a_commit_beside_the_package_is_no_other_version(
    tree: str, number: int, tmp_path: Path
) -> None:
    """Pages were changed between two trials, and before the test split was scored."""
    directory = sweep(tmp_path, TWO)
    code = {"revision": "d" * 40, "tree": "1" * 40, "dirty": False}
    for path in directory.glob("trials/*/seed*/manifest.json"):
        edit(path, code=code)
    pages = {**code, "revision": "e" * 40, "tree": tree}
    edit(workdir(directory, "b", 1) / "manifest.json", code=pages)
    codes = ({**code, "revision": "c" * 40}, {**pages, "tree": tree.replace("2", "3")})
    lines(directory / "looks.jsonl", [look(code=each) for each in codes])
    contents = gather(directory)
    assert len(warned(contents, "code")) == number and not warned(contents, "environment")
    assert contents.environment.differing["commit"]["e" * 12] == ["b-0a1b2c3d/seed1"]


def test_code_that_scored_is_that_which_trained(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    lines(directory / "looks.jsonl", [look(code={"revision": "d" * 40, "dirty": False})])
    words = "The test split was scored by another version of the code than trained: dddddddddddd."
    assert warned(gather(directory), "code") == [words]


def test_an_unequal_search_and_settings_at_the_edge(tmp_path: Path) -> None:
    """The edge is that of what was tried: with 0.003 between 0.001 and 0.01 there is room on both
    sides.
    """
    assert warned(gather(sweep(tmp_path / "inside", TWO, tuned=PEAKS)), "edge") == []
    directory = sweep(tmp_path / "edge", TWO, tuned={0.001: 0.0, 0.003: 1.0, 0.01: 2.0})
    contents = gather(directory)
    words = "schedule.peak=0.001 of a, b (0.001 to 0.01). What is best may lie beyond."
    assert warned(contents, "edge") == [f"At the edge of what was tried: {words}"]
    words = "chose the settings, on validation, and are reported too: no seed is fresh."
    assert warned(contents, "seeds") == [f"Seeds 0, 1, 2 {words}"]
    with changing(directory / "plan.json") as plan:
        del plan["candidates"][-1]
    expected = ["Not every variant had as many settings tried: a 3, b 2."]
    assert warned(gather(directory), "tuning") == expected


def test_with_a_search_only_the_first_seed_chose(tmp_path: Path) -> None:
    space = {"schedule.peak": log_uniform(1e-4, 1e-2)}
    search = Search(space, sampler="random", trials=3).to_dict()
    contents = gather(sweep(tmp_path, TWO, tuned=PEAKS, search=search))
    words = "Seed 0 chose the settings, on validation, and is reported too; seeds 1, 2 are fresh."
    assert warned(contents, "seeds") == [words]


def test_trials_that_failed_and_were_run_again(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    path = workdir(directory, "b", 2) / "events.jsonl"
    failed = end(50.0, 4.0, state="failed", step=3, message="no space")
    before = [start(46.0), failed, {"event": "retry", "time": 60.0, "step": 3}]
    lines(path, [*before, *map(json.loads, path.read_text().splitlines())])
    assert warned(gather(directory), "retried") == ["Failed and run again: b seed 2."]


def test_counts_that_are_too_low_and_parameters_that_are_never_trained(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    counted = {"loops": 2, "idle": ["decoder/w", "decoder/b"], "transcendentals": 5e6}
    edit_candidates(directory, counted=counted)
    contents = gather(directory)
    loops, idle = warned(contents, "counts")
    assert loops == "FLOPs of a, b are too low: loops of unknown length (2) were counted once."
    words = "get no gradient, and are counted all the same: decoder/w, decoder/b (a, b)."
    assert idle == f"Parameters that {words}"
    first = cells(main(contents), 0)
    assert (first["FLOPs per step"], first["transcendentals"]) == ("at least 2.5 G", "at least 5 M")


def test_an_environment_that_differs(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    edit(workdir(directory, "b", 1) / "manifest.json", packages={"jax": "0.10.3", "flax": "0.12.8"})
    expected = ["The trials differ in jax: see 'What differs between trials'."]
    assert warned(gather(directory), "environment") == expected


def test_trials_on_other_numbers_of_cores(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    edit(directory / "plan.json", cores=1)
    path = workdir(directory, "b", 2) / "events.jsonl"
    two = [{**start(90.0), "cores": [4, 5]}, end(99.0, 4.0)]
    lines(path, [*map(json.loads, path.read_text().splitlines()), *two])
    lines(directory / "looks.jsonl", [look(seeds=[0], cores=2)])
    words = "which was accepted: b seed 2 (2), a-0a1b2c3d on the test split (2)."
    assert warned(gather(directory), "cores") == [f"Not on the 1 core of the plan, {words}"]
