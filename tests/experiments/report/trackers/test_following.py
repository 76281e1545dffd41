"""The reader beside a run: every step once and whole, also after it was killed; silence is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.tree import config_hash
from attnlab.experiments.report.trackers import following, runs
from attnlab.experiments.report.trackers.following import Follower
from attnlab.experiments.report.trackers.runs import Point, Tracked
from attnlab.records.tracking import Tracking
from tests.commands.tiny import alone
from tests.experiments.report.trackers.offline import change, made, stand_in, wandb_told

TRAINED = {"seed": 3, "training": {"steps": 12, "evaluate_every": 6}}


class Memory(runs.Store):
    """A tracker that keeps all it is told: of each run the steps and how it ended."""

    def __init__(self) -> None:
        self.told: dict[str, list[Any]] = {}

    def open(self, run: Tracked) -> runs.Entry:
        kept = self.told.setdefault(run.facts["trial"], [])
        last = max((step for step in kept if isinstance(step, int)), default=-1)

        class Entry(runs.Entry):
            def log(self, points: Sequence[Point]) -> None:
                kept.extend(point.step for point in points)
                self.last = points[-1].step if points else self.last

            def end(self, run: Tracked) -> None:
                kept.append((run.facts["state"], run.final))

        return Entry(None, last)


@pytest.fixture
def follower(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Path, runs.Store], Follower]:
    def make(directory: Path, store: runs.Store) -> Follower:
        found = Follower("wandb", "", directory)
        monkeypatch.setattr(found, "_store", store)
        return found

    return make


def trained(folder: Path, *steps: int, valid: Sequence[int] = (), ended: bool = False) -> Path:
    """The records of a run that has got so far."""
    folder.mkdir(exist_ok=True)
    manifest = {
        "config": TRAINED,
        "config_hash": config_hash(TRAINED),
        "code": None,
        "packages": {},
        "python": "3",
    }
    manifest |= {"platform": "x", "devices": {}, "data": {}, "command": [], "created": "now"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = [(step, "train") for step in steps] + [(step, "valid") for step in valid]
    records = [{"step": step, "split": split, "loss": 1.0} for step, split in sorted(lines)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records))
    events = [{"event": "start", "time": 1.0, "step": 0}]
    end = {"event": "end", "time": 2.0, "step": 12, "state": "done", "message": ""}
    events += [end] if ended else []
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in events))
    return folder


@pytest.mark.quick
def test_every_step_is_told_once_and_whole(
    tmp_path: Path, follower: Callable[[Path, runs.Store], Follower]
) -> None:
    store = Memory()
    folder, told = trained(tmp_path / "run", 3, 6), store.told.setdefault("run", [])
    first = follower(folder, store)
    first.look(last=False)
    assert told == [3]  # 6 is evaluated, and its scores are still to come
    trained(folder, 3, 6, valid=[6])
    first.look(last=False)
    first.look(last=False)
    assert told == [3, 6]
    trained(folder, 3, 6, 9, 12, valid=[6, 12], ended=True)
    second = follower(folder, store)  # the first was killed
    second.look(last=False)
    assert told == [3, 6, 9, 12]
    (folder / "results.json").write_text(json.dumps({"split": "test", "exact": 0.5}))
    second.look(last=True)
    assert told == [3, 6, 9, 12, ("done", {"final/test/exact": 0.5})]


def test_trials_end_as_they_settle_and_get_later_numbers_at_the_end(
    tmp_path: Path, follower: Callable[[Path, runs.Store], Follower]
) -> None:
    directory, store = made(tmp_path / "sweep"), Memory()
    beside = follower(directory, store)
    beside.look(last=False)
    assert len(store.told) == 8
    assert {kept[-1][0] for kept in store.told.values()} == {"done", "diverged"}
    change(directory)
    before = {name: len(kept) for name, kept in store.told.items()}
    beside.look(last=True)
    more = [name for name, kept in store.told.items() if len(kept) > before[name]]
    assert len(more) == 1 and store.told[more[0]][:4] == [3, 6, 9, 12]


def test_what_fails_is_said_once_and_tried_again(
    tmp_path: Path, follower: Callable[[Path, runs.Store], Follower], capfd: Any, monkeypatch: Any
) -> None:
    store, failures = Memory(), [ConnectionError("gone"), ConnectionError("gone")]
    beside = follower(trained(tmp_path / "run", 3, valid=[]), store)
    opened = store.open

    def refuse(run: Tracked) -> runs.Entry:
        if failures:
            raise failures.pop()
        beside.leaving.set()
        return opened(run)

    monkeypatch.setattr(store, "open", refuse)
    monkeypatch.setattr(following, "POLL", 0.0)
    monkeypatch.setattr(following, "SHARE", 0)
    beside.run()
    assert store.told["run"] == [3, ("interrupted", {})]
    assert capfd.readouterr().err.count("wandb: ConnectionError: gone; the run goes on") == 1


def test_a_tracker_that_never_answers_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, tmp_path / "packages")
    (tmp_path / "packages" / "wandb.py").write_text(
        "import time\nSettings = dict\ndef init(**_): time.sleep(600)"
    )
    folder = trained(tmp_path / "run", 3)
    code = """
import os, pathlib, sys
from attnlab.config.tree import config_hash
from attnlab.experiments.report.trackers import following
following.SILENT, following.POLL = 0.5, 0.1
follower = following.Follower("wandb", sys.argv[1], pathlib.Path(sys.argv[2]), 1)
follower.leaving.set()
follower.run()
"""
    said = alone(code, str(tmp_path / "store"), str(folder))
    assert said.startswith("wandb: has not answered for 0.5 s; the run goes on, and 'export")
    assert said.count("\n") == 1


def test_the_client_of_wandb_is_told_by_a_process_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, as after a kill: one run, told from the first step."""
    stand_in(monkeypatch, tmp_path / "packages")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "store"))
    folder = trained(tmp_path / "run", 3, 6, valid=[6])
    for flag, steps in (("wandb", (3, 6)), (None, (3, 6, 9))):
        chosen = Tracking.choose(folder, flag)
        with chosen.beside(folder):
            trained(folder, *steps, valid=[6])
        told = wandb_told(tmp_path / "store", chosen.id)
        assert told[0] == ["begin", "run"] and [line[1] for line in told if line[0] == "log"] == [
            *steps
        ]
        assert told[-1] == ["finish", 1]
