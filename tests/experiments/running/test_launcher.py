"""The stages of a sweep with an executor that only writes records."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments.running import launcher
from attnlab.experiments.running.board import Board
from attnlab.experiments.running.jobs import Job
from attnlab.experiments.running.launcher import Launcher, course, lock, read, retry_failed
from attnlab.experiments.running.selection import Choice
from attnlab.experiments.running.stop import Stop
from tests.experiments import stub


class Records:
    """Does every job at once, as `endings` has it by variant and seed; "left" leaves it as it is."""

    def __init__(self, directory: Path, **endings: str) -> None:
        self.directory, self.endings = directory, endings
        self.done: list[str] = []

    def run(self, jobs: Sequence[Job]) -> list[str]:
        for job in jobs:
            self.done.append(job.name)
            for trial in job.trials:
                ending = self.endings.get(f"{trial.candidate.variant}_{trial.seed}", "done")
                if job.kind == "final":
                    assert Choice.read(self.directory) is not None
                    stub.looked_at(trial, self.directory)
                elif ending != "left":
                    stub.finish(trial, self.directory, ending)
        return []


def launched(directory: Path, executor: Records) -> Launcher:
    return Launcher(directory, executor, Board(read(directory), directory, stream=io.StringIO()), Stop())


@pytest.mark.quick
def test_trials_then_the_choice_then_the_test_split_once(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    executor = Records(tmp_path, general_1="diverged")
    made = launched(tmp_path, executor)
    made.train()
    assert executor.done == [trial.name for trial in plan.trials()] and Choice.read(tmp_path) is None
    assert made.finish() == []
    assert executor.done[4:] == [f"{one.id} on the test split" for one in plan.candidates]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = Records(tmp_path)
    launched(tmp_path, again).train()
    launched(tmp_path, again).finish()
    assert again.done == [] and before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


def test_nothing_is_chosen_while_a_trial_is_left(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    made = launched(tmp_path, Records(tmp_path, general_0="left"))
    made.train()
    with pytest.raises(UserError, match=f"1 trials have not settled .{plan.trials()[1].name} is one., so nothing is chosen"):
        made.finish()
    assert Choice.read(tmp_path) is None


def test_failed_trials_run_again_on_request_only_where_they_still_matter(tmp_path: Path) -> None:
    """A failed seed of a chosen candidate does; the variants' choice stays."""
    stub.planned(tmp_path)
    made = launched(tmp_path, Records(tmp_path, general_1="failed", additive_0="diverged"))
    made.train()
    made.finish()
    choice = (tmp_path / "choice.json").read_bytes()
    assert retry_failed(tmp_path) == 1 and [one.state for one in course(tmp_path)].count("interrupted") == 1
    executor = Records(tmp_path)
    again = launched(tmp_path, executor)
    again.train()
    again.finish()
    assert [(name.partition("-")[0], name[-5:]) for name in executor.done] == [("general", "seed1"), ("general", "split")]
    assert (tmp_path / "choice.json").read_bytes() == choice and retry_failed(tmp_path) == 0
    assert [one.state for one in course(tmp_path)].count("done") == 3  # the diverged one stays what it is


def test_trials_are_put_together_as_asked(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    executor = Records(tmp_path)
    board = Board(plan, tmp_path, stream=io.StringIO())
    pairs = lambda jobs: [Job("train", tuple(one for job in jobs for one in job.trials))]  # noqa: E731
    Launcher(tmp_path, executor, board, Stop(), pairs).train()
    assert executor.done == [f"{plan.trials()[0].name} and 3 more"] and {one.state for one in course(tmp_path)} == {"done"}


def test_a_search_is_asked_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round's trials run before the next is asked for, and those of the last one, with all seeds, too."""
    from attnlab.experiments.running import searching

    class Space:
        def to_dict(self) -> dict[str, object]:
            space = {"schedule.peak": {"kind": "choice", "options": [1.0]}}
            return {"sampler": "grid", "trials": 1, "pruner": None, "at_once": 1, "seed": 0, "space": space}

    plan = stub.planned(tmp_path, search=Space())
    rounds = iter([True, False])
    asked: list[int] = []

    def advance(directory: Path) -> bool:
        asked.append(len(list(directory.rglob("valid.json"))))
        going_on = next(rounds)
        if not going_on:
            plan.promote(one.id for one in plan.candidates).write(directory)
        return going_on

    monkeypatch.setattr(searching, "advance", advance)
    executor = Records(tmp_path)
    launched(tmp_path, executor).train()
    assert asked == [0, 2] and [name[-1] for name in executor.done] == ["0", "0", "1", "1"]


def test_a_second_launcher_is_refused(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(UserError, match=r"another launcher is at work there \(pid \d+ on .*\); 'status .*' shows how far"):
        lock(tmp_path)
    lock(tmp_path).release()
    with pytest.raises(UserError, match="holds no sweep"):
        launcher.read(tmp_path)
