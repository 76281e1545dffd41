"""`status`, on folders of sweeps that no launcher is at work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.tiny import called
from tests.experiments import stub


@pytest.mark.quick
def test_the_table_the_troubles_and_the_counts(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    stub.finish(plan.trials()[0], tmp_path)
    stub.finish(plan.trials()[1], tmp_path, "failed")
    before = sorted(tmp_path.rglob("*"))
    ended = called(["status", str(tmp_path)])
    assert ended.code == 0 and ended.err == ""
    title, columns, _, first, second, trouble, summary = ended.out.splitlines()
    assert title == "which" and columns.split() == ["trial", "seed", "0", "seed", "1"]
    assert first.split() == [plan.candidates[0].id, "done", "pending"] and second.split()[1:] == ["failed", "10", "pending"]
    assert trouble == f"{plan.candidates[1].id}/seed0 failed at step 10: failed on purpose"
    assert summary.startswith("1 done, 2 pending, 1 failed of 4") and sorted(tmp_path.rglob("*")) == before


def test_watching_ends_when_all_has_settled(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    assert called(["status", str(tmp_path), "--watch"]).out.endswith("4 done of 4\n")


def test_a_folder_without_a_sweep_is_one_line(tmp_path: Path) -> None:
    ended = called(["status", str(tmp_path)])
    assert ended.code == 2 and f"{tmp_path} holds no sweep (no plan.json in it)" in ended.err and ended.err.count("\n") == 1
    (tmp_path / "plan.json").write_text("{")
    assert "plan.json is damaged" in called(["status", str(tmp_path)]).err
