"""How trials stand while a sweep runs."""

from __future__ import annotations

from pathlib import Path

from attnlab.experiments.run.standing import best, running
from attnlab.experiments.run.state import look_at_all
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.experiments import stub
from tests.experiments.synthetic import lines


def test_the_running_and_the_best_so_far(tmp_path: Path) -> None:
    """Of what is done the score that is chosen by, of what runs the best it has measured; NaN is
    none.
    """
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    assert best(plan, tmp_path, look_at_all(plan, tmp_path))[1] == []
    additive, general, *_ = plan.trials()
    stub.finish(additive, tmp_path, loss=0.75)
    workdir = general.workdir(tmp_path)
    workdir.mkdir(parents=True)
    began = Attempt.start(workdir).began
    measured = [(2, "valid", 0.5), (3, "train", 0.1), (4, "valid", 0.625)]
    measured.append((6, "valid", float("nan")))
    records = [{"step": step, "split": split, "loss": loss} for step, split, loss in measured]
    lines(workdir / "metrics.jsonl", records)
    with RunLock(workdir):
        seen = look_at_all(plan, tmp_path)
        columns, ((name, steps, value, step, heard, by),) = running(
            plan, tmp_path, seen, (began or 0) + 90
        )
    assert columns == ["trial", "step", "loss, validation", "at step", "last heard of", "by"]
    assert (name, steps, value, step, heard) == (general.name, "0/10", 0.625, 4, "0:01:30 ago")
    assert str(by).startswith("pid ")
    expected = [["additive", 0.75, additive.name, "1/3"], ["general", 0.5, general.name, "0/3"]]
    assert best(plan, tmp_path, seen)[1] == expected
    assert running(plan, tmp_path, look_at_all(plan, tmp_path), 0.0)[1] == []
