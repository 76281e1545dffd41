"""plan.json: written and read back, running order, ids that stay, growth by several processes at
once; tasks.json, which names the folders of the tasks' sweeps: none is left out in silence.
"""

import concurrent.futures
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import grid
from attnlab.experiments.plan import Candidate, Plan, read_tasks, write_tasks
from attnlab.experiments.plan.candidate import Counted
from tests.experiments.plans import EXPERIMENT, plan
from tests.refusals import check_refused


@pytest.mark.quick
def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    made = plan(tune=grid({"schedule.peak": (1e-3, 3e-3)}))
    assert Plan.read(tmp_path) is None
    made.write(tmp_path / "new")
    assert Plan.read(tmp_path / "new") == made
    stored = json.loads((tmp_path / "new" / "plan.json").read_text())
    assert stored["version"] == 2 and stored["candidates"][1]["tuned"] == {"schedule.peak": 3e-3}
    expected = [{"weights": {"general": 1.0, "additive": -1.0}, "at_least": 0.1}]
    assert stored["claim"]["contrasts"] == expected


def test_trials_run_seed_by_seed(tmp_path: Path) -> None:
    trials = plan().trials()
    assert [trial.candidate.variant for trial in trials] == ["additive", "general"] * 2
    assert [trial.seed for trial in trials] == [0, 0, 1, 1]
    last = trials[-1]
    assert last.config == {"seed": 1, "training": {"steps": 12}}
    assert trials[0].config == {"seed": 0, "training": {"steps": 12}}
    assert last.workdir(tmp_path) == tmp_path / "trials" / last.candidate.id / "seed1"
    assert last.name == f"{last.candidate.id}/seed1" and last.candidate.id.startswith("general-")
    assert plan().trial(last.candidate.id, 1) == last and len({*trials}) == 4


def test_a_trial_that_is_not_in_the_plan() -> None:
    words = "no candidate 'additive-0323'; did you mean 'additive-"
    check_refused(words, plan().trial, "additive-0323", 0)
    check_refused("no seed 7; its seeds: 0, 1", plan().trial, plan().candidates[0].id, 7)
    check_refused("no variant 'generel'; did you mean 'general'", plan().want, "generel", {})


def test_settings_found_by_a_search_have_the_id_of_a_listed_point() -> None:
    listed = plan(tune=grid({"schedule.peak": (1e-3,)})).candidates
    assert plan().want("general", {"schedule.peak": 1e-3}).id == listed[1].id


def test_growing_keeps_what_is_there() -> None:
    old = plan()
    again = dataclasses.replace(old.candidates[0], parameters=99)
    new = dataclasses.replace(old.candidates[0], id="new-00000000")
    assert old.grown([again, new]).candidates == (*old.candidates, new)


def _extend(directory: str, number: int) -> None:
    one = plan().candidates[0]
    Plan.extend(directory, [Candidate(f"new-{number}", one.variant, {}, {}, one.config, 1, 1.0)])


def test_several_extend_one_plan_and_nothing_is_lost(tmp_path: Path) -> None:
    """Each opens the lock's file for itself, which for `flock` is the same as another process."""
    plan().write(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(_extend, [str(tmp_path)] * 12, range(12)))
    found = Plan.of_sweep(tmp_path)
    assert {one.id for one in found.candidates} >= {f"new-{number}" for number in range(12)}
    check_refused("holds no sweep", Plan.extend, tmp_path / "elsewhere", [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "candidates": [{"id": 3}]}',
        '{"version": 9}',
    ],
)
def test_a_damaged_plan_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    check_refused(r"plan\.json is (damaged|of version 9)", Plan.read, tmp_path)


def test_a_plan_of_version_1_can_be_read_and_stays_of_it(tmp_path: Path) -> None:
    plan().write(tmp_path)
    fields = json.loads((tmp_path / "plan.json").read_text()) | {"version": 1}
    del fields["own_code"], fields["looks"], fields["cores"], fields["unmatched"]
    for one in fields["candidates"]:
        del one["code"], one["wanted"], one["counted"]
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    found = Plan.of_sweep(tmp_path)
    assert (found.own_code, found.looks, found.cores, found.version) == (None, 1, None, 1)
    assert [(one.code, one.counted) for one in found.candidates] == [(None, Counted())] * 2
    assert found.made_of(found.want("general", {}).id) == found.candidates[1]
    assert found.made_of("absent") is None
    assert json.loads(found.grown([]).to_json())["version"] == 1


FIELDS: dict[str, Any] = json.loads(plan().to_json())
FIRST, STEPS = FIELDS["candidates"][0], {"config": {"training": {"steps": -1}}}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("select", {"metric": 3, "mode": "min"}, "select.metric is 3, expected a text"),
        (
            "measure",
            {"metric": "loss", "mode": "most"},
            "measure.mode is \"most\", expected 'min' or 'max'",
        ),
        ("candidates", [FIRST | STEPS], "candidates[0].config.training.steps is -1"),
        (
            "claim",
            {"statement": "x", "contrasts": [{"weights": {"a": "1"}, "at_least": 0.0}]},
            "claim.contrasts[0].weights.a is",
        ),
        ("search", {"sampler": "random"}, "search.trials is missing"),
    ],
)
def test_another_kind_is_told_with_its_place(field: str, value: Any, words: str) -> None:
    check_refused(re.escape(words), Plan.from_json, json.dumps({**FIELDS, field: value}), "here")


def test_tasks_are_kept_in_order_and_none_is_lost_in_silence(tmp_path: Path) -> None:
    assert read_tasks(tmp_path) is None
    both = dataclasses.replace(EXPERIMENT, tasks={"b": {}, "a": {}})
    write_tasks(tmp_path / "new", both, replace=False)
    stated = read_tasks(tmp_path / "new")
    assert stated is not None and stated["tasks"] == ["b", "a"]
    other = dataclasses.replace(EXPERIMENT, tasks={"a": {}, "c": {}})
    check_refused("has a task 'b' too; put it back", write_tasks, tmp_path / "new", other, False)
    assert read_tasks(tmp_path / "new") == stated
    write_tasks(tmp_path / "new", other, replace=True)
    assert read_tasks(tmp_path / "new") == {**stated, "tasks": ["a", "c"]}
