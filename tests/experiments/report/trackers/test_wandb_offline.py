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

from attnlab.experiments.report.trackers import export
from tests.experiments.report.trackers.offline import change, made, read_wandb, stand_in, wandb_told
from tests.refusals import check_refused


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs are kept by a client that only listens."""
    real = sys.modules.pop("wandb", None)
    stand_in(monkeypatch, tmp_path / "packages", "wandb")
    yield tmp_path / "out"
    sys.modules.pop("wandb", None)
    if real is not None:
        sys.modules["wandb"] = real


def identity(folder: Path) -> str:
    """The id of the run in a folder."""
    return folder.name.rpartition("-")[2]


@pytest.mark.quick
def test_what_the_client_is_told(tmp_path: Path, out: Path) -> None:
    done = export(made(tmp_path / "sweep"), "wandb", out)
    assert (done.written, done.replaced, done.unchanged) == (8, 0, 0)
    every = [wandb_told(out, identity(path)) for path in (out / "wandb").iterdir()]
    runs = {told[0][1]: told for told in every}
    (_, _, given), *logged, (_, final), ended = runs["additive-peak-0.003-0a1b2c3d/seed1"]
    assert given["mode"] == "offline" and given["job_type"] == "additive"
    assert given["tags"] == ["additive", "seed 1", "chosen"] and ended == ["finish", 0]
    assert given["config"]["training"] == {"steps": 12}
    assert (given["config"]["seed"], given["config"]["variant"]) == (1, "additive")
    assert [step for _, step, _ in logged] == [3, 6, 9, 12]
    assert logged[-1][2]["valid/exact"] == 0.8
    assert final["final/test/exact"] == 0.8 and final["cost/seconds"] == 30.5
    assert final["state"] == "done"
    *_, (_, final), ended = runs["location-peak-0.003-0a1b2c3d/seed1"]
    assert (ended, final["state"]) == (["finish", 1], "diverged")
    assert "final/test/exact" not in final
    assert runs["additive-peak-0.001-0a1b2c3d/seed1"][0][2]["tags"] == ["additive", "seed 1"]
    assert len({told[0][2]["id"] for told in every}) == 8
    assert {told[0][2]["group"] for told in every} == {given["group"]}


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
    shutil.copytree(folders[5], out / "wandb" / f"offline-run-2027_1-{identity(folders[5])}")
    done = export(directory, "wandb", out)
    assert (done.written, done.replaced, done.unchanged) == (0, 3, 5)
    ids = sorted(map(identity, (out / "wandb").iterdir()))
    assert ids == sorted(map(identity, folders))
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
        directory = made(tmp_path / f"sweep {found is None}")
        check_refused(words, export, directory, "wandb", tmp_path / "out")
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
        records = list(read_wandb(path))
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
