"""W&B: what its client is told, with one that only listens; and what the real one leaves, where it
is installed.
"""

import json
import shutil
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.report.trackers import export
from tests.experiments.report.trackers.offline import change, made, wandb_records


class Listener(types.ModuleType):
    """A `wandb` that leaves a folder for each run and remembers what it was told."""

    __version__ = "0"

    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None, origin="here")
        self.told: list[dict[str, Any]] = []
        self.Settings = dict

    def init(self, **given: Any) -> Any:
        run = {**given, "log": [], "final": {}, "exit": None}
        self.told.append(run)
        folder = Path(given["dir"]) / "wandb" / f"offline-run-2026_{len(self.told)}-{given['id']}"
        folder.mkdir(parents=True)

        def log(values: dict[str, float], step: int) -> None:
            run["log"].append((step, values))

        def finish(exit_code: int) -> None:
            run["exit"] = exit_code

        return types.SimpleNamespace(log=log, finish=finish, summary=run["final"])


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    monkeypatch.setitem(sys.modules, "wandb", found := Listener())
    return found


@pytest.mark.quick
def test_what_the_client_is_told(tmp_path: Path, listener: Listener) -> None:
    done = export(made(tmp_path / "sweep"), "wandb", tmp_path / "out")
    assert (done.written, done.replaced, done.unchanged) == (8, 0, 0) and len(listener.told) == 8
    runs = {run["name"]: run for run in listener.told}
    one = runs["additive-peak-0.003-0a1b2c3d/seed1"]
    assert one["mode"] == "offline" and one["job_type"] == "additive"
    assert one["tags"] == ["additive", "seed 1", "chosen"] and one["exit"] == 0
    assert one["config"]["training"] == {"steps": 12}
    assert (one["config"]["seed"], one["config"]["variant"]) == (1, "additive")
    assert [step for step, _ in one["log"]] == [3, 6, 9, 12]
    assert one["log"][-1][1]["valid/exact"] == 0.8
    assert one["final"]["final/test/exact"] == 0.8 and one["final"]["cost/seconds"] == 30.5
    assert one["final"]["state"] == "done"
    lost = runs["location-peak-0.003-0a1b2c3d/seed1"]
    assert (lost["exit"], lost["final"]["state"]) == (1, "diverged")
    assert "final/test/exact" not in lost["final"]
    assert runs["additive-peak-0.001-0a1b2c3d/seed1"]["tags"] == ["additive", "seed 1"]
    assert len({run["id"] for run in listener.told}) == 8
    assert {run["group"] for run in listener.told} == {one["group"]}


def test_twice_is_once(tmp_path: Path, listener: Listener) -> None:
    """What is there and has not changed is left alone; what has changed, or was half written, is
    written anew under its id.
    """
    directory, out = made(tmp_path / "sweep"), tmp_path / "out"
    export(directory, "wandb", out)
    folders = sorted((out / "wandb").iterdir())
    assert export(directory, "wandb", out).unchanged == 8
    assert sorted((out / "wandb").iterdir()) == folders
    (folders[3] / "attnlab.digest").unlink()
    change(directory)
    shutil.copytree(
        folders[5], (out / "wandb" / f"offline-run-2027_1-{folders[5].name.rpartition('-')[2]}")
    )
    done = export(directory, "wandb", out)
    assert (done.written, done.replaced, done.unchanged) == (0, 3, 5)
    ids = [path.name.rpartition("-")[2] for path in (out / "wandb").iterdir()]
    assert len(ids) == len(set(ids)) == 8 and {run["id"] for run in listener.told} == set(ids)
    other = tmp_path / "other"
    (directory).rename(other)  # a sweep is the same wherever it lies
    assert export(other, "wandb", out).unchanged == 8


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a folder that W&B has left, which Python takes for a package of modules."""
    left = types.ModuleType("wandb")
    left.__spec__ = ModuleSpec("wandb", None)
    for found in (None, left):
        monkeypatch.setitem(sys.modules, "wandb", found)  # type: ignore[arg-type]
        words = r"export --to=wandb needs wandb: pip install 'attnlab\[wandb\]'"
        with pytest.raises(UserError, match=words):
            export(made(tmp_path / f"sweep {found is None}"), "wandb", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def values(items: Any) -> dict[str, Any]:
    """The numbers of a record by their names."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_what_the_real_one_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path))
    directory, out = made(tmp_path / "sweep"), tmp_path / "out"
    assert export(directory, "wandb", out).written == 8
    assert export(directory, "wandb", out).unchanged == 8
    found = {}
    for path in (out / "wandb").glob("offline-run-*/*.wandb"):
        records = list(wandb_records(path))
        run = next(record.run for record in records if record.HasField("run"))
        logged = [record.history.item for record in records if record.HasField("history")]
        history = [values(items) for items in logged]
        updates = [record.summary.update for record in records if record.HasField("summary")]
        summary = [item for update in updates for item in update]
        found[run.display_name] = (run, history, values(summary))
    assert len(found) == 8
    run, history, summary = found["additive-peak-0.003-0a1b2c3d/seed1"]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    score = config["system"]["attention"]["score"]
    assert list(run.tags) == ["additive", "seed 1", "chosen"] and run.job_type == "additive"
    assert score == "additive"
    assert [one["_step"] for one in history] == [3, 6, 9, 12]
    assert [one["valid/exact"] for one in history] == pytest.approx([0.0, 0.2, 0.5, 0.8])
    assert summary["final/test/exact"] == 0.8
