"""The reader beside a run: every step once and whole, also after it was killed; silence is said."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report.trackers import Point, Tracked, TrackerStore, following, tracked_in
from attnlab.experiments.report.trackers.following import Follower
from attnlab.records.tracking import Tracking
from tests.commands.tiny import alone
from tests.experiments.report.trackers.offline import change, made, stand_in, wandb_told
from tests.experiments.synthetic import end, lines, manifest, start, write


class Memory(TrackerStore):
    """A tracker that keeps all it is told: of each run the points and how it ended."""

    def __init__(self) -> None:
        self.told: dict[str, list[Any]] = {}

    def open(self, run: Tracked) -> tuple[Any, int]:
        kept = self.told.setdefault(run.facts["trial"], [])
        return kept, max((told.step for told in kept if isinstance(told, Point)), default=-1)

    def log(self, opened: Any, points: Sequence[Point]) -> None:
        opened.extend(points)

    def end(self, opened: Any, run: Tracked) -> None:
        opened.append((run.facts["state"], run.final))


def points(kept: list[Any]) -> list[tuple[int, list[str]]]:
    """The steps that were told, and the names of the values of each."""
    return [(told.step, sorted(told.values)) for told in kept if isinstance(told, Point)]


def whole(*steps: int) -> list[tuple[int, list[str]]]:
    return [(step, ["train/loss", "valid/loss"]) for step in steps]


def follower(directory: Path, store: TrackerStore) -> Follower:
    beside = Follower("wandb", "", directory)
    beside._store = store
    return beside


def trained(folder: Path, *steps: int, state: str = "", evaluated: bool = True) -> Path:
    """The records of a run that has got so far; the last step may not be evaluated yet."""
    write(folder / "manifest.json", manifest({"seed": 3}))
    records = [
        {"step": step, "split": split, "loss": 1.0}
        for step in steps
        for split in ("train", "valid")
    ]
    lines(folder / "metrics.jsonl", records if evaluated else records[:-1])
    ended = [end(2.0, None, state=state)] if state else []
    lines(folder / "events.jsonl", [start(1.0), *ended])
    return folder


@pytest.mark.quick
def test_every_step_is_told_once_and_whole(tmp_path: Path) -> None:
    store = Memory()
    folder, told = trained(tmp_path / "run", 3, 6), store.told.setdefault("run", [])
    first = follower(folder, store)
    for _ in range(2):
        first.look(last=False)
        assert points(told) == whole(3)  # other records of 6 may be still to come
    trained(folder, 3, 6, 9, 12, state="done")
    second = follower(folder, store)  # the first was killed
    second.look(last=False)
    assert points(told) == whole(3, 6, 9, 12) and isinstance(told[-1], Point)
    (folder / "results.json").write_text(json.dumps({"split": "test", "exact": 0.5}))
    second.look(last=True)
    assert points(told) == whole(3, 6, 9, 12)
    assert told[4:] == [("done", {"final/test/exact": 0.5})]


def test_a_step_without_its_evaluation_waits_for_it(tmp_path: Path) -> None:
    """Both at the last look, after a kill while it was evaluated, and in an export meanwhile."""
    store = Memory()
    folder = trained(tmp_path / "run", 3, 6, evaluated=False)
    told = store.told.setdefault("run", [])
    for run in tracked_in(folder):
        store.write(run)
    assert points(told) == whole(3)
    follower(folder, store).look(last=True)
    assert points(told) == whole(3) and told[-1] == ("interrupted", {})
    trained(folder, 3, 6, 9, state="done")
    follower(folder, store).look(last=True)
    assert points(told) == whole(3, 6, 9)


def test_trials_end_as_they_settle_and_get_later_numbers_at_the_end(tmp_path: Path) -> None:
    directory, store = made(tmp_path / "sweep"), Memory()
    beside = follower(directory, store)
    beside.look(last=False)
    assert len(store.told) == 8
    assert {kept[-1][0] for kept in store.told.values()} == {"done", "diverged"}
    change(directory)
    before = {name: len(kept) for name, kept in store.told.items()}
    beside.look(last=True)
    more = [name for name, kept in store.told.items() if len(kept) > before[name]]
    assert len(more) == 1
    assert [step for step, _ in points(store.told[more[0]])] == [3, 6, 9, 12]


def test_what_fails_is_said_once_and_tried_again(
    tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    store, failures = Memory(), [ConnectionError("gone"), ConnectionError("gone")]
    beside = follower(trained(tmp_path / "run", 3, 6), store)
    opened = store.open

    def refuse(run: Tracked) -> tuple[Any, int]:
        if failures:
            raise failures.pop()
        beside.leaving.set()
        return opened(run)

    monkeypatch.setattr(store, "open", refuse)
    monkeypatch.setattr(following, "POLL", 0.0)
    monkeypatch.setattr(following, "SHARE", 0)
    store.hint = "page"
    beside.run()
    assert points(store.told["run"]) == whole(3)
    assert store.told["run"][1:] == [("interrupted", {})]
    told = capfd.readouterr().err
    assert told.count("wandb: ConnectionError: gone; the run goes on") == 1
    assert told.count("look:   page\n") == 1 and told.endswith("look:   page\n")


@pytest.mark.parametrize("hangs", ["Settings = dict\ndef init(**_): ", ""])
def test_a_tracker_that_never_answers_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    """Also where its import hangs."""
    stand_in(monkeypatch, tmp_path / "packages")
    (tmp_path / "packages" / "wandb.py").write_text(f"import time\n{hangs}time.sleep(600)")
    folder = trained(tmp_path / "run", 3)
    code = """
import os, pathlib, sys
from attnlab.experiments.report.trackers import following
following.SILENT, following.POLL = 0.5, 0.1
follower = following.Follower("wandb", sys.argv[1], pathlib.Path(sys.argv[2]), 1)
follower.leaving.set()
follower.run()
"""
    said = alone(code, str(tmp_path / "store"), str(folder))
    assert said.startswith("wandb: has not answered for 0.5 s; the run goes on, and 'export")
    assert said.count("\n") == 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for W&B keeps trackers."""
    stand_in(monkeypatch, tmp_path / "packages")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "store"))
    return tmp_path / "store"


def test_the_client_of_wandb_is_told_by_a_process_beside(tmp_path: Path, store: Path) -> None:
    """Twice, as after a kill: one run, told from the first step."""
    folder = trained(tmp_path / "run", 3, 6)
    for flag, steps, state in (("wandb", (3, 6), ""), (None, (3, 6, 9), "done")):
        chosen = Tracking.choose(folder, flag)
        with chosen.beside(folder):
            trained(folder, *steps, state=state)
        told = wandb_told(store, chosen.id)
        assert told[0][:2] == ["begin", "run"]
        logged = [line[1] for line in told if line[0] == "log"]
        assert logged == list(steps if state else steps[:-1])
        assert told[-1] == ["finish", 0 if state else 1]


def test_a_run_that_raises_is_told_whole(tmp_path: Path, store: Path) -> None:
    folder = trained(tmp_path / "run", 3)
    chosen = Tracking.choose(folder, "wandb")
    with pytest.raises(RuntimeError, match="no good"), chosen.beside(folder):
        trained(folder, 3, 6, state="failed")
        raise RuntimeError("no good")
    told = wandb_told(store, chosen.id)
    assert [line[1] for line in told if line[0] == "log"] == [3, 6]
    assert told[-1] == ["finish", 1] and told[-2][1]["state"] == "failed"
