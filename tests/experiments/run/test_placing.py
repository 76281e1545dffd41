"""The launcher of workers that somebody else places, here nobody."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from attnlab.experiments.plan import Plan
from attnlab.experiments.run import Stop, placing
from attnlab.experiments.run.jobs import trainings
from attnlab.experiments.run.placing import Placed
from tests.experiments import stub


class Workers(Placed):
    """So many are there after each look; each look ends a trial, if there are any."""

    logs = "nowhere"

    def __init__(self, plan: Plan, directory: Path, there: list[int]) -> None:
        request = SimpleNamespace(workers=3)
        super().__init__(directory, request, stub.Board(), Stop())  # type: ignore[arg-type]
        self.left, self.there, self.asked = plan.trials(), there, list[int]()

    def prepare(self) -> None:
        """Nothing is needed."""

    def workers(self) -> int:
        if self.there[0]:
            stub.finish(self.left.pop(0), self._directory)
        return self.there.pop(0) if len(self.there) > 1 else self.there[0]

    def submit(self, count: int) -> None:
        self.asked.append(count)

    def leave(self) -> None:
        self.asked.append(-1)


@pytest.mark.parametrize(
    ("there", "asked", "ended"),
    [
        ([1], [2], 4),  # only the missing ones, and once
        ([3], [], 4),  # of an earlier launcher
        ([2, 0, 0, 2], [1, 3, 3], 3),
        ([0], [3, 3, 3], 0),
    ],
)
def test_workers_are_asked_for_until_the_work_is_done(
    there: list[int], asked: list[int], ended: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again only where none has stayed, and not for ever."""
    monkeypatch.setattr(placing, "POLL", 0.0)
    plan = stub.planned(tmp_path)
    workers = Workers(plan, tmp_path, there)
    lines = workers.run(lambda: trainings(plan, None, tmp_path))
    if ended < 4 and there == [0]:
        first = plan.trials()[0].name
        assert lines == [f"{first} and 3 more: no worker stays; their logs lie in nowhere"]
    assert workers.asked == asked
    names = [f"ended {trial.name}" for trial in plan.trials()]
    assert workers._board.lines[:ended] == names[:ended]  # type: ignore[attr-defined]


def test_a_launcher_that_is_told_to_stop(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    workers = Workers(plan, tmp_path, [0])
    workers._stop.signals.append(2)
    assert workers.run(lambda: trainings(plan, None, tmp_path)) == [] and workers.asked == [-1]
