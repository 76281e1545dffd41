"""The record of looks: a choice before it is frozen, a reading of the test split before it is
opened; lines are only added.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments import rows
from attnlab.experiments.plan.candidate import Trial
from attnlab.experiments.run import looked, looks, scoring, selection
from attnlab.experiments.run.selection import Choice, freeze
from tests.experiments import stub
from tests.refusals import check_refused


@pytest.mark.quick
def test_every_freezing_is_recorded_with_what_it_freezes(tmp_path: Path) -> None:
    """A variant that comes later is frozen alone; freezing again what is frozen is none."""
    assert looked(tmp_path) == ()
    two = {"additive": {}, "general": {"system.attention.score": "general"}}
    plan = stub.finished(tmp_path, compare=rows(two))
    freeze(plan, tmp_path)
    freeze(plan, tmp_path)
    three = rows({**two, "dot": {"system.attention.score": "dot"}})
    more = stub.finished(tmp_path, compare=three, seeds=(0, 1, 2))
    freeze(dataclasses.replace(more, hash="1" * 12), tmp_path)
    first, second = looked(tmp_path)
    assert first["event"] == "choice" and first["seeds"] == (0, 1) and first["plan"] == plan.hash
    assert [*first["chosen"]] == ["additive", "general"]
    assert second["seeds"] == (0, 1, 2) and second["plan"] == "1" * 12
    assert second["chosen"] == {"dot": more.of("dot")[0].id}
    assert first["code"] is None or set(first["code"]) == {"revision", "tree", "dirty"}


def test_a_choice_is_recorded_before_it_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.finished(tmp_path)

    def full(self: Choice, directory: Path) -> None:
        raise UserError("no space")

    monkeypatch.setattr(selection.Choice, "write", full)
    check_refused("no space", freeze, plan, tmp_path)
    assert [one["event"] for one in looked(tmp_path)] == ["choice"]
    assert Choice.read(tmp_path) is None


@pytest.mark.quick
def test_a_reading_that_fails_is_recorded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.finished(tmp_path)
    freeze(plan, tmp_path)
    candidate = plan.candidates[0]
    stub.looked_at(Trial(candidate, 0), tmp_path)
    # scored; only its pictures are to be drawn
    (Trial(candidate, 0).workdir(tmp_path) / "curves.png").unlink()
    seen = []

    def broken(trials: object, directory: Path) -> int:
        seen.append(looked(directory)[-1])
        raise RuntimeError("killed, say")

    monkeypatch.setattr(scoring, "_evaluate", broken)
    monkeypatch.setattr(scoring, "write_output_to", lambda path: None)
    assert scoring.run(tmp_path, candidate.id) == 1
    assert seen[0]["event"] == "test" and seen[0]["candidate"] == candidate.id
    assert seen[0]["scored"] == (1,) and seen[0]["seeds"] == (0, 1)
    assert len(looked(tmp_path)) == 2


def test_half_a_line_that_a_power_cut_has_left_goes(tmp_path: Path) -> None:
    plan = stub.finished(tmp_path)
    looks.note_test(tmp_path, plan, "a", [0])
    with open(tmp_path / looks.FILE, "a") as file:
        file.write('{"event": "te')
    assert len(looked(tmp_path)) == 1
    looks.note_test(tmp_path, plan, "b", [0])
    assert [one["candidate"] for one in looked(tmp_path)] == ["a", "b"]
    assert all(json.loads(line) for line in (tmp_path / looks.FILE).read_text().splitlines())
