"""A whole sweep from its plan on: how it is arranged, what is told at its end, and what is still to
come.
"""

import dataclasses
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments import Search, choice, grid
from attnlab.experiments.run import Part, SweepOptions, WorkOptions, sweeping
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.worker import Worker
from tests.experiments import stub


@pytest.mark.quick
@pytest.mark.parametrize(
    ("stack", "environment", "together"),
    [
        ("auto", {}, False),
        ("auto", {"CUDA_VISIBLE_DEVICES": "0"}, True),
        ("on", {}, True),
        ("off", {"CUDA_VISIBLE_DEVICES": "0"}, False),
    ],
)
def test_what_trains_together(
    stack: str, environment: dict[str, str], together: bool, tmp_path: Path
) -> None:
    stub.planned(tmp_path)
    options = SweepOptions([Slot(0, (), environment)], stack=stack)
    assert sweeping.trains_together(tmp_path, options) == together


def test_a_trial_lost_and_not_chosen_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for trial in plan.trials():
        lost = trial.candidate == plan.candidates[0] and trial.seed == plan.seeds[0]
        stub.finish(trial, tmp_path, "failed" if lost else "done")
    freeze(plan, tmp_path)
    monkeypatch.setattr(Worker, "run", lambda worker, due: [])
    ended = sweeping.run_sweep(tmp_path, SweepOptions([Slot(0)], stack="off"))
    assert ended.signal is None and len(ended.wrong) == 1
    assert ended.wrong[0].startswith(f"{plan.trials()[0].name} failed")
    monkeypatch.setattr(Worker, "run", lambda worker, due: ["no slot stays"])
    options = SweepOptions([Slot(0)], stack="off", final=False)
    assert sweeping.run_sweep(tmp_path, options).wrong[1:] == ("no slot stays",)
    words = "--skip=dot: no variant, candidate or trial is called so; choose from: additive, gen"
    with pytest.raises(UserError, match=words):
        options = SweepOptions([Slot(0)], work=WorkOptions(Part.of(None, "dot")))
        sweeping.run_sweep(tmp_path, options)


def test_the_devices_that_configs_name(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    configs = ({"parallel": {"devices": number}} for number in (0, 4))
    assert sweeping.devices_wanted(plan) is None
    pairs = zip(plan.candidates, configs, strict=True)
    candidates = (dataclasses.replace(one, config=config) for one, config in pairs)
    assert sweeping.devices_wanted(dataclasses.replace(plan, candidates=tuple(candidates))) == 4
    searched = dataclasses.replace(plan, candidates=(), base={"parallel.devices": 2})
    assert sweeping.devices_wanted(searched) == 2


def test_the_outlook_of_a_search_whose_choice_is_frozen(tmp_path: Path) -> None:
    """Nothing is searched for any more where all have their choice; what is new is."""
    search = Search({"schedule.peak": choice(1e-3, 2e-3)}, sampler="grid", trials=2)
    plan = stub.planned(tmp_path, search=search, tune=(), seeds=(0, 1))
    plan = plan.promote(one.id for one in plan.candidates)
    plan.write(tmp_path)
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    freeze(plan, tmp_path)
    assert sweeping.outlook(plan, tmp_path) == "4 trials: seeds 0, 1; 4 of them have settled before"
    variants = {**plan.variants, "dot": {"system.attention.score": "dot"}}
    more = dataclasses.replace(plan, variants=variants)
    assert sweeping.outlook(more, tmp_path) == (
        "2 settings of schedule.peak for each of 1 variants, with seed 0; the best of each with"
        " seeds 1 too; 4 of variants whose choice is frozen: at most 7 trials; 4 of them have"
        " settled before"
    )
