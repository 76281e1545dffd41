"""plan.json: written and read back, running order, ids that stay, growth by several processes at
once.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments import grid, rows
from attnlab.experiments.plan.plan import Candidate, Counted, Plan, Trial, candidate_id, with_code
from tests.experiments.plans import plan

CONFIG = "configs/translation.py:rnnsearch"


@pytest.mark.quick
def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    made = plan(tune=grid({"schedule.peak": (1e-3, 3e-3)}))
    assert Plan.read(tmp_path) is None
    made.write(tmp_path / "new")
    assert Plan.read(tmp_path / "new") == made
    stored = json.loads((tmp_path / "new" / "plan.json").read_text())
    assert stored["version"] == 1 and stored["candidates"][1]["tuned"] == {"schedule.peak": 3e-3}
    assert stored["claim"]["contrasts"] == [
        {"weights": {"general": 1.0, "additive": -1.0}, "at_least": 0.1}
    ]
    for one in stored["candidates"]:  # as plans were written before these were counted
        del one["counted"]
    del stored["looks"]
    old = Plan.from_json(json.dumps(stored), "old")
    assert (old.looks, old.candidates[0].counted) == (1, Counted())


def test_trials_run_seed_by_seed(tmp_path: Path) -> None:
    trials = plan().trials()
    assert [(trial.candidate.variant, trial.seed) for trial in trials] == [
        ("additive", 0),
        ("general", 0),
        ("additive", 1),
        ("general", 1),
    ]
    last = trials[-1]
    assert last.config == {"seed": 1, "training": {"steps": 12}} and trials[0].config == {
        "seed": 0,
        "training": {"steps": 12},
    }
    assert last.workdir(tmp_path) == tmp_path / "trials" / last.candidate.id / "seed1"
    assert last.name == f"{last.candidate.id}/seed1" and last.candidate.id.startswith("general-")
    assert plan().trial(last.candidate.id, 1) == last and len({*trials}) == 4


def test_a_trial_that_is_not_in_the_plan() -> None:
    with pytest.raises(UserError, match="no candidate 'additive-0323'; did you mean 'additive-"):
        plan().trial("additive-0323", 0)
    with pytest.raises(UserError, match="no seed 7; its seeds: 0, 1"):
        plan().trial(plan().candidates[0].id, 7)
    with pytest.raises(UserError, match="no variant 'generel'; did you mean 'general'"):
        plan().want("generel", {})


@pytest.mark.quick
def test_an_id_depends_on_the_settings_and_on_nothing_else() -> None:
    one = candidate_id(CONFIG, {"a.b": 1, "c.d": (2, 3)}, ("b=1, d=2x3", ""))
    assert one == candidate_id(CONFIG, {"c.d": [2, 3], "a.b": 1}, ("d=2x3, b=1",))
    assert one == "b-1-d-2x3-9d1ce85f"  # a folder that a user has on disk
    others = [
        candidate_id(CONFIG, {"a.b": 1, "c.d": (2, 4)}, ("b=1, d=2x3", "")),
        candidate_id(CONFIG, {"a.b": 1.0, "c.d": (2, 3)}, ("b=1, d=2x3", "")),
        candidate_id(CONFIG, {"a.b": 1, "c.d": (2, 3), "e": None}, ("b=1, d=2x3", "")),
        candidate_id(
            "configs/translation.py:transformer", {"a.b": 1, "c.d": (2, 3)}, ("b=1, d=2x3", "")
        ),
    ]
    assert len({one, *others}) == 5


def test_an_id_is_a_folder_name() -> None:
    for name in ("../..", "a/b\\c", "ä", "", "." * 300, "x" * 300, "my.file:Mechanism"):
        found = candidate_id(CONFIG, {}, (name,))
        assert (
            len(found) <= 69
            and "/" not in found
            and "\\" not in found
            and not found.startswith((".", "-"))
            and found.isascii()
        )


def test_ids_stay_when_an_experiment_grows_or_is_put_in_another_order() -> None:
    """Variants, seeds and tuned values come and go; what a candidate is stays."""
    small = plan(tune=grid({"schedule.peak": (1e-3,)}))
    variants = {
        "general": {"system.attention.score": "general"},
        "dot": {"system.attention.score": "dot"},
        "additive": {},
    }
    large = plan(
        compare=rows(variants),
        tune=grid({"schedule.peak": (3e-3, 1e-3)}),
        seeds=(5, 0),
        baseline="dot",
        question="Why?",
    )
    assert {one.id for one in small.candidates} < {one.id for one in large.candidates}
    assert len(large.candidates) == 6
    swapped = [
        plan(tune=grid(dict(order)))
        for order in ([("a.b", (1, 2)), ("c", (3,))], [("c", (3,)), ("a.b", (1, 2))])
    ]
    assert {one.id for one in swapped[0].candidates} == {one.id for one in swapped[1].candidates}


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
    found = Plan.read(tmp_path)
    assert found is not None and {one.id for one in found.candidates} >= {
        f"new-{number}" for number in range(12)
    }
    with pytest.raises(UserError, match="holds no plan"):
        Plan.extend(tmp_path / "elsewhere", [])


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
    with pytest.raises(UserError, match=r"plan\.json is (damaged|of version 9)"):
        Plan.read(tmp_path)


def test_a_trial_keeps_its_config_apart_from_the_candidate() -> None:
    candidate = plan().candidates[0]
    Trial(candidate, 1).config["seed"] = 9
    assert candidate.config == {"seed": 0, "training": {"steps": 12}}


def test_code_of_the_users_own_is_part_of_an_id() -> None:
    """Which modules and what is in them; without such code an id is what it was before that was
    kept.
    """
    code = {"mine": "a" * 64, "mine.aid": "b" * 64}
    ids = {
        with_code("a-b-12345678", one)
        for one in (code, {"mine": "a" * 64}, {**code, "mine": "c" * 64}, {"other": "a" * 64})
    }
    assert len(ids) == 4 and all(
        one.startswith("a-b-") and len(one) == len("a-b-12345678") for one in ids
    )
    assert (
        with_code("a-b-12345678", dict(reversed(code.items()))) in ids
        and with_code("a-b-12345678", {}) == "a-b-12345678"
    )
    assert with_code("a-b-12345679", code) not in ids


def test_a_plan_of_before_code_was_kept_can_be_read(tmp_path: Path) -> None:
    plan().write(tmp_path)
    fields = json.loads((tmp_path / "plan.json").read_text())
    del fields["own_code"]
    for one in fields["candidates"]:
        del one["code"], one["wanted"]
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    found = Plan.read(tmp_path)
    assert (
        found is not None
        and found.own_code is None
        and [one.code for one in found.candidates] == [None, None]
    )
    assert (
        found.made_of(found.want("general", {}).id) == found.candidates[1]
        and found.made_of("absent") is None
    )
