"""Which trials form a group, and the process that trains one: every trial's folder is as if it had been alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.experiments.plan import Candidate, Plan, Trial
from attnlab.experiments.running import stacking
from attnlab.training.manifest import Manifest
from attnlab.training.records import RunLock, Status, read_records
from tests.commands.tiny import SHARED, SMALL


def candidate(name: str, *overrides: str) -> Candidate:
    """A tiny RNNsearch on dates."""
    config = configs.load("configs/translation.py:rnnsearch", [*SMALL["rnnsearch"], *SHARED, "training.steps=6", *overrides])
    return Candidate(name, name, {}, {}, json.loads(json.dumps(configs.to_dict(config))), 0, 0.0)


def plan(*candidates: Candidate, seeds: tuple[int, ...] = (0, 1)) -> Plan:
    """A sweep of these."""
    chosen = {"metric": "loss", "mode": "min"}
    fields: dict[str, Any] = {"base": {}, "tune": (), "budget": None, "claim": None, "search": None, "select": chosen, "measure": chosen}
    fields |= {"name": "toy", "file": "toy.py", "question": "?", "config": "c", "hash": "0", "created": "now"}
    fields |= {"variants": {one.variant: {} for one in candidates}, "baseline": candidates[0].variant}
    return Plan(**fields, seeds=seeds, candidates=candidates)


@pytest.mark.quick
def test_groups_hold_what_shares_a_program_in_order() -> None:
    slow, fast = candidate("slow", "schedule.peak=1e-4"), candidate("fast", "schedule.peak=1e-3")
    other = candidate("other", "system.embedding=6")
    trials = plan(slow, other, fast).trials()
    names = [[trial.name for trial in group] for group in stacking.group(trials)]
    assert names == [["slow/seed0", "fast/seed0", "slow/seed1", "fast/seed1"], ["other/seed0", "other/seed1"]]
    assert [len(group) for group in stacking.group(trials, most=3)] == [3, 1, 2]
    assert stacking.group([]) == []


def test_a_group_leaves_what_each_trial_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, scores, manifest, attempts; a second process does nothing; one that is held is left for later."""
    monkeypatch.setattr(stacking, "write_output_to", lambda log: None)  # it would take the output of the tests
    sweep = plan(candidate("one"), seeds=(0, 1, 2))
    sweep.write(tmp_path)
    first, second, third = sweep.trials()
    names = [trial.name for trial in sweep.trials()]
    with RunLock(third.workdir(tmp_path)):
        assert stacking.run(tmp_path, names) == stacking.HELD
    for trial in (first, second):
        workdir = trial.workdir(tmp_path)
        records = [(record["step"], record["split"]) for record in read_records(workdir / "metrics.jsonl")]
        assert records == [(3, "train"), (6, "train"), (6, "valid")]
        manifest, status = Manifest.read(workdir), Status.read(workdir) or {}
        assert manifest is not None and manifest.config == trial.config and manifest.devices["stacked"] == 2
        assert set(manifest.data) == {"train", "valid"} and (workdir / "vocabulary").is_dir()
        assert (status["state"], status["step"]) == ("done", 6)
        assert json.loads((workdir / "valid.json").read_text())["split"] == "valid"
        assert events(workdir) == [("start", None), ("end", "done")]
    assert f"trained together with {first.name}" in (second.workdir(tmp_path) / "log.txt").read_text()
    assert not (third.workdir(tmp_path) / "manifest.json").exists()
    assert stacking.run(tmp_path, names[:2]) == 0  # nothing is left to do
    assert [len(events(trial.workdir(tmp_path))) for trial in (first, second)] == [2, 2]


def events(workdir: Path) -> list[tuple[str, str | None]]:
    """What attempts.jsonl tells, in short."""
    return [(record["event"], record.get("state")) for record in map(json.loads, (workdir / "attempts.jsonl").read_text().splitlines())]


@pytest.mark.parametrize(("name", "words"), [("one", "is no trial: expected CANDIDATE/seedN"), ("noe/seed0", "did you mean 'one'")])
def test_mistakes_are_named(name: str, words: str, tmp_path: Path) -> None:
    plan(candidate("one")).write(tmp_path)
    with pytest.raises(UserError, match=words):
        stacking.run(tmp_path, [name])


def test_a_trial_is_named_as_it_names_itself(tmp_path: Path) -> None:
    sweep = plan(candidate("one"))
    sweep.write(tmp_path)
    assert [stacking.named(tmp_path, trial.name).name for trial in sweep.trials()] == ["one/seed0", "one/seed1"]
    assert isinstance(stacking.named(tmp_path, "one/seed1"), Trial)
