"""The plan of a dry run serves the sweep that follows, while it is of the same things."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.plan import drafts
from attnlab.experiments.plan.plan import Plan
from attnlab.experiments.run import planning as planned
from tests.experiments.plans import experiment_file

SCORES = "compare=rows({'additive': {}, 'general': {'system.attention.score': 'general'}})"


@pytest.mark.usefixtures("inside")
def test_a_sweep_after_a_dry_run_does_not_plan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    file = experiment_file(tmp_path / "which.py", SCORES)
    plan_anew, calls = planned._planned, list[str]()

    def counted(function: Any, *given: Any) -> Plan:
        calls.append(function)
        return plan_anew(function, *given)

    monkeypatch.setattr(planned, "_planned", counted)
    drafted = planned.draft(file, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists() and len(drafted.candidates) == 2
    made = planned.ensure(file, tmp_path / "sweep")
    assert calls == ["made"] and made == Plan.read(tmp_path / "sweep")
    assert made.candidates == drafted.candidates and made.own_code == drafted.own_code
    monkeypatch.setattr(drafts, "LIFETIME", 0.0)
    planned.ensure(file, tmp_path / "an hour later")
    assert calls == ["made"] * 2


@pytest.mark.usefixtures("inside")
def test_a_draft_of_other_data_or_code_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    (data := tmp_path / "data").mkdir()
    (data / "train.tsv").write_text("a\tb\n")
    file = experiment_file(tmp_path / "which.py", SCORES)
    plan = planned.draft(file, tmp_path / "sweep")
    first = plan.candidates[0]
    for setting in (str(data), [{"train": str(data / "train.tsv")}]):
        config = {**first.config, "data": {"name": "files", "directory": setting}}
        reading = dataclasses.replace(plan, candidates=(dataclasses.replace(first, config=config),))
        before = drafts._inputs(reading)
        assert drafts._inputs(reading) == before
        (data / "train.tsv").write_text("a\tb\n" * len(before))
        assert drafts._inputs(reading) != before
        (data / "train.tsv").write_text("a\tb\n")
    drafts.keep(plan)
    monkeypatch.setattr(drafts, "_inputs", lambda plan: "other code")
    assert drafts.stored(file, planned.AS_IT_IS) is None
    monkeypatch.setenv("ATTNLAB_CACHE", "")
    assert drafts.stored(file, planned.AS_IT_IS) is None
