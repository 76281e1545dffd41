"""A whole sweep from its plan on: how it is arranged, what is told at its end; and its stages with
an executor that only writes records.
"""

import io
from pathlib import Path

import pytest

from attnlab.experiments import Search, choice, grid
from attnlab.experiments.plan import Plan
from attnlab.experiments.run import Board, Choice, Part, Stop, launcher, look_at_all, searching
from attnlab.experiments.run.jobs import Due
from attnlab.experiments.run.launcher import Launcher, SweepOptions
from attnlab.experiments.run.live import WorkOptions
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.worker import Worker
from tests.experiments import stub
from tests.refusals import check_refused


class Records:
    """Does every job at once, as `endings` has it by variant and seed; "left" leaves it as it
    is.
    """

    def __init__(self, directory: Path, **endings: str) -> None:
        self.directory, self.endings = directory, endings
        self.done: list[str] = []

    def run(self, due: Due) -> list[str]:
        for job in due():
            self.done.append(job.name)
            for trial in job.trials:
                ending = self.endings.get(f"{trial.candidate.variant}_{trial.seed}", "done")
                if job.kind == "final":
                    assert Choice.read(self.directory) is not None
                    stub.looked_at(trial, self.directory)
                elif ending != "left":
                    stub.finish(trial, self.directory, ending)
        return []


def launched(directory: Path, executor: Records, accept_failed: bool = False) -> Launcher:
    board = Board(Plan.of_sweep(directory), directory, stream=io.StringIO())
    return Launcher(directory, executor, board, Stop(), accept_failed=accept_failed)


def written(directory: Path) -> dict[Path, int]:
    """When each file of a folder was written last."""
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


@pytest.mark.quick
def test_trials_then_the_choice_then_the_test_split_once(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    executor = Records(tmp_path, general_1="diverged")
    made = launched(tmp_path, executor)
    made.train()
    assert executor.done == [trial.name for trial in plan.trials()]
    assert Choice.read(tmp_path) is None
    assert made.finish() == []
    assert executor.done[4:] == [f"{one.id} on the test split" for one in plan.candidates]
    before = written(tmp_path)
    again = Records(tmp_path)
    launched(tmp_path, again).train()
    launched(tmp_path, again).finish()
    assert again.done == [] and before == written(tmp_path)


def test_nothing_is_chosen_while_a_trial_is_left(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    made = launched(tmp_path, Records(tmp_path, general_0="left"))
    made.train()
    words = f"1 trials have not settled .{plan.trials()[1].name} is one., so nothing is chosen"
    check_refused(words, made.finish)
    assert Choice.read(tmp_path) is None


def test_nothing_is_frozen_while_a_trial_that_could_be_chosen_has_failed(tmp_path: Path) -> None:
    """A disk that was full for a moment must not choose: the failed one may be the best. One that
    diverged has its outcome.
    """
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    lost, *others = plan.trials()
    for trial in others:
        stub.finish(trial, tmp_path, "diverged" if trial == others[0] else "done")
    stub.finish(lost, tmp_path, "failed")
    executor = Records(tmp_path)
    assert launched(tmp_path, executor).finish() == [
        "nothing is chosen and the test split stays closed, because 1 trial that could be chosen"
        f" has failed ({lost.name}: failed on purpose): --retry-failed runs it again,"
        " --accept-failed chooses without it"
    ]
    assert executor.done == [] and Choice.read(tmp_path) is None
    assert not list(tmp_path.rglob("results.json"))
    assert launcher.retry_failed(tmp_path) == 1  # though nobody knows yet whether it will be chosen
    stub.finish(lost, tmp_path, loss=0.5)
    assert launched(tmp_path, executor).finish() == []
    choice = Choice.read(tmp_path)
    assert choice is not None and choice.candidate("additive") == lost.candidate.id
    for word in choice.chosen.values():
        assert (word["settings"], word["trained"], len(word["accepted"])) == (2, 2, 0)


def test_what_was_accepted_is_written_beside_the_choice_and_not_asked_again(tmp_path: Path) -> None:
    """Also of a variant that has nothing to choose from. New failures of a variant without a
    candidate ask again.
    """
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for trial in plan.trials():
        lost = trial.candidate.variant == "general" or trial.name == plan.trials()[0].name
        stub.finish(trial, tmp_path, "failed" if lost else "done")
    executor = Records(tmp_path)
    (line,) = launched(tmp_path, executor).finish()
    assert "because 5 trials that could be chosen have failed" in line and "runs them again" in line
    assert launched(tmp_path, executor, accept_failed=True).finish() == []
    choice = Choice.read(tmp_path)
    assert choice is not None and choice.candidate("general") is None
    assert choice.candidate("additive") == plan.of("additive")[1].id
    additive, general = choice.chosen["additive"], choice.chosen["general"]
    assert (additive["settings"], additive["trained"]) == (2, 1)
    assert (general["settings"], general["trained"]) == (2, 0)
    assert additive["accepted"] == {plan.trials()[0].name: "failed on purpose"}
    assert len(general["accepted"]) == 4
    assert launched(tmp_path, executor).finish() == []  # the same command again, without the flag


def test_failed_trials_run_again_on_request_only_where_they_still_matter(tmp_path: Path) -> None:
    """A failed seed of a chosen candidate does; the variants' choice stays."""
    stub.planned(tmp_path)
    ends = Records(tmp_path, general_1="failed", additive_0="diverged")
    made = launched(tmp_path, ends, accept_failed=True)
    made.train()
    made.finish()
    choice = (tmp_path / "choice.json").read_bytes()
    assert launcher.retry_failed(tmp_path) == 1
    assert [one.state for one in launcher.course(tmp_path)].count("interrupted") == 1
    executor = Records(tmp_path)
    again = launched(tmp_path, executor)
    again.train()
    again.finish()
    done = [(name.partition("-")[0], name[-5:]) for name in executor.done]
    assert done == [("general", "seed1"), ("general", "split")]
    assert (tmp_path / "choice.json").read_bytes() == choice and launcher.retry_failed(
        tmp_path
    ) == 0
    # the diverged one stays what it is
    assert [one.state for one in launcher.course(tmp_path)].count("done") == 3


def test_a_search_goes_on_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round's trials run before the next is asked for, and those of the last one, with all
    seeds, too.
    """
    search = Search({"schedule.peak": choice(1.0)}, sampler="grid", trials=1)
    plan = stub.planned(tmp_path, search=search)
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


def test_a_part_runs_and_nothing_is_chosen_while_others_are_open(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    executor, out = Records(tmp_path), io.StringIO()
    board = Board(plan, tmp_path, stream=out)
    some = Launcher(tmp_path, executor, board, Stop(), part=Part.of("gen*", "*/seed1"))
    assert some.train() == [] and some.finish() == []
    assert executor.done == [plan.trials()[1].name] and Choice.read(tmp_path) is None
    assert out.getvalue() == (
        "nothing is chosen while trials are left out by --only or --skip: 3 have not settled,"
        f" {plan.trials()[0].name} is one\n"
    )
    part = Part.of("*", "general/seed9,general-*/seed0")
    rest = Launcher(tmp_path, executor, board, Stop(), part=part)
    # the left-out one had settled
    assert rest.train() == [] and rest.finish() == [] and len(executor.done) == 4 + 2
    assert Choice.read(tmp_path) is not None


def test_a_trial_stopped_by_request_is_chosen_without(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    names = [trial.name for trial in plan.trials()]
    assert launcher.stop_trial(tmp_path, names[0], "it oscillates").state == "pending"
    executor = Records(tmp_path)
    made = launched(tmp_path, executor)
    assert made.train() == [] and names[0] not in executor.done and made.finish() == []
    choice = Choice.read(tmp_path)
    assert choice.chosen["additive"]["accepted"] == {names[0]: "stopped by request: it oscillates"}
    assert choice.candidate("additive") == plan.of("additive")[1].id
    assert choice.chosen["additive"]["trained"] == 1
    assert launcher.retry_failed(tmp_path) == 0
    for name, words in (
        (names[0], "is stopped already, at step 0: there is nothing to stop"),
        (names[1], "is done already"),
        ("additive", "'additive' is no trial: expected CANDIDATE/seedN"),
    ):
        check_refused(words, launcher.stop_trial, tmp_path, name, "")
    words = "the choice of its variant is frozen, so it cannot run"
    check_refused(words, launcher.take_back, tmp_path, names[0])
    (tmp_path / "choice.json").unlink()
    launcher.take_back(tmp_path, names[0])
    assert [one.word for one in look_at_all(plan, tmp_path)].count("interrupted") == 1
    check_refused("is done: it was not stopped by request", launcher.take_back, tmp_path, names[1])


def test_a_second_launcher_is_refused(tmp_path: Path) -> None:
    words = r"another launcher is at work there \(pid \d+ on .*\); 'status .*' shows how far"
    with launcher.lock(tmp_path):
        check_refused(words, launcher.lock, tmp_path)
    launcher.lock(tmp_path).release()
    check_refused("holds no sweep", Plan.of_sweep, tmp_path)


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
    assert launcher.trains_together(tmp_path, options) == together


def test_a_trial_lost_and_not_chosen_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for trial in plan.trials():
        lost = trial.candidate == plan.candidates[0] and trial.seed == plan.seeds[0]
        stub.finish(trial, tmp_path, "failed" if lost else "done")
    freeze(plan, tmp_path)
    monkeypatch.setattr(Worker, "run", lambda worker, due: [])
    ended = launcher.run_sweep(tmp_path, SweepOptions([Slot(0)], stack="off"))
    assert ended.signal is None and len(ended.wrong) == 1
    assert ended.wrong[0].startswith(f"{plan.trials()[0].name} failed")
    monkeypatch.setattr(Worker, "run", lambda worker, due: ["no slot stays"])
    options = SweepOptions([Slot(0)], stack="off", final=False)
    assert launcher.run_sweep(tmp_path, options).wrong[1:] == ("no slot stays",)
    words = "--skip=dot: no variant, candidate or trial is called so; choose from: additive, gen"
    options = SweepOptions([Slot(0)], work=WorkOptions(Part.of(None, "dot")))
    check_refused(words, launcher.run_sweep, tmp_path, options)
