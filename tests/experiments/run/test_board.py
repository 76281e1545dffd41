"""The table and the lines of a running sweep, and what is still to come."""

import dataclasses
import io
import time
from pathlib import Path

import pytest

from attnlab.experiments import Search, choice, grid, run
from attnlab.experiments.plan import Plan
from attnlab.experiments.run import Seen, board, look_at_all
from attnlab.experiments.run.board import pretty, remaining
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.slots import Slot
from attnlab.records import attempts
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.experiments import stub
from tests.experiments.synthetic import lines
from tests.test_progress import Terminal


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """One trial done, one failed, one that has begun (running while `held`) in step 4 of 10, one
    pending.
    """
    made = stub.planned(tmp_path)
    done, failed, running, _ = made.trials()
    stub.finish(done, tmp_path)
    stub.finish(failed, tmp_path, "failed")
    workdir = running.workdir(tmp_path)
    workdir.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "INTERVAL", 0.0)
        Attempt.start(workdir).at(4)
    return made


@pytest.fixture
def held(plan: Plan, tmp_path: Path) -> RunLock:
    """The lock of the running trial."""
    return RunLock(plan.trials()[2].workdir(tmp_path))


@pytest.mark.quick
def test_the_overview_has_a_cell_for_each_seed(plan: Plan, held: RunLock, tmp_path: Path) -> None:
    seen = run.shown(plan, tmp_path)
    columns, rows = run.overview(plan, seen)
    first, second = (one.id for one in plan.candidates)
    assert columns == ["trial", "seed 0", "seed 1"]
    assert rows == [[first, "done", "4/10"], [second, "failed 10", "pending"]]
    assert run.troubles(seen) == [f"{second}/seed0 failed at step 10: failed on purpose"]
    assert run.summary(seen).startswith("1 done, 1 running, 1 pending, 1 failed of 4")
    held.release()
    assert run.overview(plan, run.shown(plan, tmp_path))[1][0] == [first, "done", "interrupted 4"]


def test_a_trial_that_hangs_is_told(
    plan: Plan, held: RunLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time() + 1000
    monkeypatch.setattr(board.time, "time", lambda: later)
    seen = run.shown(plan, tmp_path)
    assert run.overview(plan, seen)[1][0][2] == "4/10 stalled"
    assert run.troubles(seen)[-1].startswith(f"{plan.trials()[2].name} stalled: no word for 0:16:")


def test_many_seeds_are_counted(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path, seeds=tuple(range(9)))
    for trial in plan.trials()[:3]:
        stub.finish(trial, tmp_path)
    columns, rows = run.overview(plan, run.shown(plan, tmp_path))
    assert columns == ["trial", "done", "pending"]
    assert [row[1:] for row in rows] == [["2", "7"], ["1", "8"]]


def test_trials_that_a_frozen_choice_left_behind_are_not_waited_for(tmp_path: Path) -> None:
    """Of a third seed only those of chosen candidates are to come; what was tried before is still
    shown.
    """
    tune = grid({"schedule.peak": (0.1, 0.2)})
    plan = stub.planned(tmp_path, tune=tune)
    for trial in plan.trials():
        stub.finish(trial, tmp_path, loss=trial.candidate.tuned["schedule.peak"])
    freeze(plan, tmp_path)
    grown = stub.planned(tmp_path, tune=tune, seeds=(0, 1, 2))
    assert len(grown.trials()) == 12 and len(run.shown(grown, tmp_path)) == 10
    with run.Board(grown, tmp_path, stream=io.StringIO()) as board:
        assert not board.settled
        board.plan = plan
        assert board.settled


def test_how_long_it_may_take(tmp_path: Path) -> None:
    """By the mean of those that are done; before that by the running one that has steps; before
    that nobody knows.
    """
    trial = stub.planned(tmp_path).trials()[0]
    done, waiting = Seen(trial, "done", 10, seconds=30.0), Seen(trial, "pending")
    halfway = Seen(trial, "running", 5, since=100.0, pace=8.0)
    assert remaining([done, waiting, waiting], 1) == 60.0
    assert remaining([done, halfway, waiting], 2) == pytest.approx((30 + 15) / 2)
    assert remaining([halfway, waiting], 1) == pytest.approx(80 * 0.5 + 80)
    assert remaining([done, halfway, waiting], 0) == pytest.approx(45.0)
    assert remaining([waiting], 1) is None
    assert remaining([Seen(trial, "running", 0, since=1.0)], 1) is None
    assert run.summary([done, waiting], 1) == "1 done, 1 pending of 2; 0:00:30 left"
    assert run.summary([done]) == "1 done of 1"
    # nobody is at work
    assert remaining([done, waiting], 0) is None
    assert run.summary([done, waiting]) == "1 done, 1 pending of 2"


def test_plain_lines_where_there_is_no_terminal(plan: Plan, held: RunLock, tmp_path: Path) -> None:
    out = io.StringIO()
    with run.Board(plan, tmp_path, 2, out) as board:
        trial = plan.trials()[3]
        board.started(Job("train", (trial,)), Slot(1))
        stub.finish(trial, tmp_path, "diverged")
        board.ended(Job("train", (trial,)))
        board.ended(Job("final", (plan.trials()[0],)))
        board.tick()
    lines = out.getvalue().splitlines()
    assert lines[0] == f"slot 1: {trial.name} starts" and len(lines) == 3
    words = "diverged on purpose (1 done, 1 running, 1 failed, 1 diverged of 4"
    assert lines[1].startswith(f"{trial.name}: diverged at step 10 after 0:00:00: {words}")
    assert lines[2] == f"{plan.candidates[0].id} on the test split: evaluated"


def test_a_table_that_stays_in_place_on_a_terminal(
    plan: Plan, held: RunLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = Terminal()
    shown.bare = out = Terminal()  # type: ignore[attr-defined]
    with run.Board(plan, tmp_path, 2, shown) as board:
        board.note("a line\x1b[2J above")
        stub.finish(plan.trials()[3], tmp_path)
        board.ended(Job("train", (plan.trials()[3],)))
    text = out.getvalue()
    words = ("a line\u241b[2J above", "4/10", "2 done, 1 running, 1 failed of 4")
    assert all(one in text for one in (*words, "failed on purpose", "\x1b[")), text
    monkeypatch.setenv("TERM", "dumb")
    plain = Terminal()
    with run.Board(plan, tmp_path, 2, plain) as board:
        board.note("a line")
    assert plain.getvalue() == "a line\n"


def test_names_with_brackets_are_not_markup(tmp_path: Path) -> None:
    import rich.console

    plan = stub.planned(tmp_path)
    trial = plan.trials()[0]
    seen = [Seen(trial, "failed", 1, message="[red]bracketed[/red] \x1b[2J")]
    console = rich.console.Console(file=io.StringIO(), width=200)
    console.print(pretty(plan, seen, 1))
    assert "[red]bracketed[/red] \u241b[2J" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_running_and_the_best_so_far(tmp_path: Path) -> None:
    """Of what is done the score that is chosen by, of what runs the best it has measured; NaN is
    none.
    """
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    assert run.best(plan, tmp_path, look_at_all(plan, tmp_path))[1] == []
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
        now = (began or 0) + 90
        columns, ((name, steps, value, step, heard, by),) = run.running(plan, tmp_path, seen, now)
    assert columns == ["trial", "step", "loss, validation", "at step", "last heard of", "by"]
    assert (name, steps, value, step, heard) == (general.name, "0/10", 0.625, 4, "0:01:30 ago")
    assert str(by).startswith("pid ")
    expected = [["additive", 0.75, additive.name, "1/3"], ["general", 0.5, general.name, "0/3"]]
    assert run.best(plan, tmp_path, seen)[1] == expected
    assert run.running(plan, tmp_path, look_at_all(plan, tmp_path), 0.0)[1] == []


def test_the_outlook_of_a_search_whose_choice_is_frozen(tmp_path: Path) -> None:
    """Nothing is searched for any more where all have their choice; what is new is."""
    search = Search({"schedule.peak": choice(1e-3, 2e-3)}, sampler="grid", trials=2)
    plan = stub.planned(tmp_path, search=search, tune=(), seeds=(0, 1))
    plan = plan.promote(one.id for one in plan.candidates)
    plan.write(tmp_path)
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    freeze(plan, tmp_path)
    assert board.outlook(plan, tmp_path) == "4 trials: seeds 0, 1; 4 of them have settled before"
    variants = {**plan.variants, "dot": {"system.attention.score": "dot"}}
    more = dataclasses.replace(plan, variants=variants)
    assert board.outlook(more, tmp_path) == (
        "2 settings of schedule.peak for each of 1 variants, with seed 0; the best of each with"
        " seeds 1 too; 4 of variants whose choice is frozen: at most 7 trials; 4 of them have"
        " settled before"
    )
