"""W&B: what its client is told, with one that only listens; and what the real one leaves, where it
is installed.
"""

import json
import shutil
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.report.trackers import export
from tests.experiments.report.trackers.offline import change, made, stand_in, wandb_records


def runs_told(out: Path) -> dict[str, dict[str, Any]]:
    """What the stand-in for W&B was told: by the name of a run what it began with, its "log", its
    "final" numbers and its exit code.
    """
    runs = {}
    for file in (out / "wandb").glob("offline-run-*/told.jsonl"):
        (_, begin), *logged, (_, final), (_, code) = map(json.loads, file.read_text().splitlines())
        runs[begin["name"]] = {**begin, "log": logged, "final": final, "exit": code}
    return runs


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs are to be written, beside a stand-in for W&B."""
    stand_in(monkeypatch, tmp_path / "packages")
    yield tmp_path / "out"
    sys.modules.pop("wandb", None)


@pytest.mark.quick
def test_what_the_client_is_told(tmp_path: Path, out: Path) -> None:
    done = export(made(tmp_path / "sweep"), "wandb", out)
    runs = runs_told(out)
    assert (done.written, done.replaced, done.unchanged) == (8, 0, 0) and len(runs) == 8
    one = runs["additive-peak-0.003-0a1b2c3d/seed1"]
    assert one["mode"] == "offline" and one["job_type"] == "additive"
    assert one["tags"] == ["additive", "seed 1", "chosen"] and one["exit"] == 0
    assert one["config"]["training"] == {"steps": 12}
    assert (one["config"]["seed"], one["config"]["variant"]) == (1, "additive")
    assert [step for _, step, _ in one["log"]] == [3, 6, 9, 12]
    assert one["log"][-1][2]["valid/exact"] == 0.8
    assert one["final"]["final/test/exact"] == 0.8 and one["final"]["cost/seconds"] == 30.5
    assert one["final"]["state"] == "done"
    lost = runs["location-peak-0.003-0a1b2c3d/seed1"]
    assert (lost["exit"], lost["final"]["state"]) == (1, "diverged")
    assert "final/test/exact" not in lost["final"]
    assert runs["additive-peak-0.001-0a1b2c3d/seed1"]["tags"] == ["additive", "seed 1"]
    assert {run["group"] for run in runs.values()} == {one["group"]}


def test_twice_is_once(tmp_path: Path, out: Path) -> None:
    """What is there and has not changed is left alone; what has changed, or was half written, is
    written anew under its id.
    """
    directory = made(tmp_path / "sweep")
    export(directory, "wandb", out)
    folders = sorted((out / "wandb").iterdir())
    assert export(directory, "wandb", out).unchanged == 8
    assert sorted((out / "wandb").iterdir()) == folders
    (folders[3] / "attnlab.digest").unlink()
    change(directory)
    identity = folders[5].name.rpartition("-")[2]
    shutil.copytree(folders[5], out / "wandb" / f"offline-run-2027_1-{identity}")
    done = export(directory, "wandb", out)
    assert (done.written, done.replaced, done.unchanged) == (0, 3, 5)
    ids = [path.name.rpartition("-")[2] for path in (out / "wandb").iterdir()]
    assert len(ids) == len(set(ids)) == len(runs_told(out)) == 8
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
