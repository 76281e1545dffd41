"""Studies on disk: the same draws whoever draws and whatever was killed, none lost, none
doubled.
"""

import math
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.define.search import Search, choice, integers, log_uniform, uniform
from attnlab.experiments.run import studies
from tests.refusals import check_refused

pytest.importorskip("optuna")

SPACE = {
    "peak": log_uniform(1e-4, 1e-2),
    "buckets": choice((16, 32), None, "x"),
    "layers": integers(1, 4),
    "dropout": uniform(0.0, 0.3),
}


def study(folder: Path, **settings: Any) -> studies.Study:
    return studies.Study(folder, Search({**SPACE}, **settings), "additive", "min")


def objective(tuned: dict[str, Any]) -> float:
    """Least at a peak of 2e-3 and no dropout."""
    return math.log(tuned["peak"] / 2e-3) ** 2 + tuned["dropout"]


def searched(folder: Path, trials: int, **settings: Any) -> list[studies.Asked]:
    """A whole search in rounds, opened anew for every call, as after so many kills."""
    search = Search({**SPACE}, trials=trials, **settings)
    for count in search.rounds():
        for _ in range(count):
            study(folder, trials=trials, **settings).ask()
        for one in study(folder, trials=trials, **settings).trials():
            if not one.settled:
                study(folder, trials=trials, **settings).tell(one.number, objective(one.tuned))
    return study(folder, trials=trials, **settings).trials()


@pytest.mark.quick
def test_every_value_lies_in_its_range_with_few_digits_and_its_own_type(tmp_path: Path) -> None:
    drawn = [study(tmp_path, sampler="random").ask().tuned for _ in range(40)]
    for one in drawn:
        assert 1e-4 <= one["peak"] <= 1e-2 and one["peak"] == float(f"{one['peak']:.4g}")
        assert one["buckets"] in SPACE["buckets"].options and 0 <= one["dropout"] <= 0.3
        assert type(one["layers"]) is int and 1 <= one["layers"] <= 4
    assert {one["buckets"] for one in drawn} == {(16, 32), None, "x"}
    assert {one["layers"] for one in drawn} == {1, 2, 3, 4}
    # half of the logarithm lies below
    assert sum(one["peak"] < 1e-3 for one in drawn) in range(10, 31)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_draws_are_a_function_of_the_seed_and_the_results(tmp_path: Path, sampler: str) -> None:
    one = searched(tmp_path / "one", 12, sampler=sampler)
    other = searched(tmp_path / "other", 12, sampler=sampler)
    assert one == other and all(trial.settled for trial in one)
    reseeded = searched(tmp_path / "seed", 12, sampler=sampler, seed=1)
    assert all(a.tuned != b.tuned for a, b in zip(one, reseeded, strict=True))


def test_tpe_learns_from_what_it_is_told(tmp_path: Path) -> None:
    trials = searched(tmp_path, 24, sampler="tpe")
    early, late = ([objective(one.tuned) for one in part] for part in (trials[:8], trials[-8:]))
    assert sum(late) < 0.5 * sum(early)


def test_variants_get_the_same_random_draws(tmp_path: Path) -> None:
    search = Search({**SPACE}, sampler="random", trials=3)
    of_both = [studies.Study(tmp_path, search, variant, "max") for variant in ("a", "b")]
    drawn = [[each.ask().tuned for _ in range(3)] for each in of_both]
    assert drawn[0] == drawn[1]


def test_a_grid_visits_every_point_once(tmp_path: Path) -> None:
    search = Search({"a": choice(1, 2), "b": choice("x", None, (3, 4))}, sampler="grid", trials=6)
    grid = studies.Study(tmp_path, search, "v", "min")
    points = [tuple(grid.ask().tuned.values()) for _ in range(6)]
    assert set(points) == {(a, b) for a in (1, 2) for b in ("x", None, (3, 4))}


def test_results_stay_and_are_told_once(tmp_path: Path) -> None:
    one = study(tmp_path)
    for _ in range(3):
        one.ask()
    one.tell(0, 0.5)
    one.tell(0, 7.0)
    one.tell(1, None)
    one.tell_pruned(2, [])
    one.ask()
    seen = [(trial.settled, trial.state, trial.value) for trial in study(tmp_path).trials()]
    assert seen == [
        (True, "complete", 0.5),
        (True, "fail", None),
        (True, "pruned", None),
        (False, "running", None),
    ]


def test_the_sampler_knows_how_far_a_pruned_trial_came(tmp_path: Path) -> None:
    one = study(tmp_path, sampler="random")
    for _ in range(2):
        one.ask()
    one.tell_pruned(0, [3.0, math.inf, 2.0])
    one.tell_pruned(0, [7.0])  # as after a kill: what was told stays
    kept = one._study.get_trials()[0]
    assert (kept.state.name, kept.intermediate_values) == ("PRUNED", {1: 3.0, 3: 2.0})
    expected = ["pruned", "running"]
    assert [trial.state for trial in study(tmp_path, sampler="random").trials()] == expected


def asks(folder: Path, count: int) -> None:
    for _ in range(count):
        study(folder, sampler="random").ask()


def test_two_processes_never_ask_the_same_trial(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("spawn")
    workers = [fork.Process(target=asks, args=(tmp_path, 8)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    trials = study(tmp_path, sampler="random").trials()
    assert [one.number for one in trials] == list(range(16))
    alone = [study(tmp_path / "alone", sampler="random").ask() for _ in range(16)]
    # the same draws in the same order as one process makes them: none lost, none doubled
    assert trials == alone


def test_a_killed_process_leaves_whole_trials_and_no_lock(tmp_path: Path) -> None:
    rng = random.Random(0)
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        worker = context.Process(target=asks, args=(tmp_path, 1000))
        worker.start()
        time.sleep(rng.uniform(0.05, 0.15))
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
    trials = study(tmp_path, sampler="random").trials()
    alone = study(tmp_path / "alone", sampler="random")
    assert trials and trials == [alone.ask() for _ in trials]


def test_a_torn_record_is_dropped(tmp_path: Path) -> None:
    first = study(tmp_path).ask()
    with open(tmp_path / "search.journal", "ab") as journal:
        journal.write(b'{"op_code": 4, "worker_id"')
    again = study(tmp_path)
    assert again.trials() == [first]
    again.tell(0, 1.0)
    assert study(tmp_path).trials()[0].value == 1.0


@pytest.mark.parametrize("line", ["null", "[]", "{}", "x", '{"op_code": 99}', "[" * 100_000])
def test_a_journal_edited_by_hand_is_one_line(line: str, tmp_path: Path) -> None:
    study(tmp_path).ask()
    journal = tmp_path / "search.journal"
    journal.write_text("\n".join([*journal.read_text().splitlines(), line, ""]))
    check_refused(f"{journal} is damaged .*put back a good copy", study, tmp_path)


def test_without_optuna_one_line_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    check_refused(r"pip install 'attnlab\[search\]'", study, tmp_path)
