"""A run that goes on from another one: bit-equal to the long run, or with data of its own; with kills:
`kill_resume.py --chain`.
"""

import io
import time
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.progress import Progress
from attnlab.records.manifest import Lineage, Manifest
from attnlab.records.stream import BEFORE, read_records
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.loop import train
from attnlab.training.parallel import backend
from attnlab.training.parent import LaterBatches, copy_state, parse_run
from attnlab.training.run import Run
from attnlab.training.session import Interrupt, Session
from attnlab.training.settings import Parallel
from attnlab.training.updates import Updates
from tests.training.kill_resume import digests
from tests.training.toy import Line, Trailing, points, run, settings

CONSTANT = {"schedule__name": "constant", "training__ema": 0.9}


def lineage(folder: Path, step: int, joined: bool) -> Lineage:
    """A run in `folder` with a manifest, as a parent."""
    manifest = Manifest.build({"seed": 0}, devices={}, data={}, command=[])
    manifest.write(folder)
    return Lineage(
        workdir=str(folder),
        config_hash=manifest.config_hash,
        step=step,
        data_from=0 if joined else step,
        joined=joined,
    )


def child(folder: Path, parent: Lineage, task: Any = None, until: int | None = None) -> None:
    """Train 12 steps from the parent on."""
    folder.mkdir(exist_ok=True)
    config = settings(training__steps=12, **CONSTANT)
    devices = backend(Parallel(backend="mesh", devices=1))
    batches = LaterBatches(points, parent["data_from"])
    parts = (config, folder, task or Line(), batches, devices, Updates.of(config))
    copy_state(parent, folder)
    with Interrupt() as interrupt, Progress(12, stream=io.StringIO()) as progress:
        session = Session(progress, interrupt, time.perf_counter(), until)
        train(Run(*parts, lineage=parent), session)


@pytest.mark.parametrize("task", [Line, Trailing])
def test_a_longer_run_has_the_bits_of_the_long_one(tmp_path: Path, task: Any) -> None:
    """The child is stopped and resumed when its parent has gone."""
    run(tmp_path / "long", settings(training__steps=12, **CONSTANT), task())
    run(tmp_path / "short", settings(training__steps=6, **CONSTANT), task())
    parent = lineage(tmp_path / "short", 6, joined=True)
    child(tmp_path / "child", parent, task(), until=7)
    (tmp_path / "short").rename(tmp_path / "gone")
    child(tmp_path / "child", parent, task())
    long, own = (tmp_path / name / "metrics.jsonl" for name in ("long", "child"))
    assert own.read_bytes() == long.read_bytes()
    assert digests(tmp_path / "long") == digests(tmp_path / "child")


def test_with_data_of_its_own_scores_begin_anew(tmp_path: Path) -> None:
    """The first batch is batch 0; rows remembered of another batch size are left; a worse score than
    any of the parent's is the best of the child.
    """
    run(tmp_path / "short", settings(training__steps=6, **CONSTANT), Trailing())
    before = (tmp_path / "short" / "metrics.jsonl").read_bytes()
    parent = lineage(tmp_path / "short", 6, joined=False)
    assert [LaterBatches(lambda step: step, 6)(step) for step in (6, 7)] == [0, 1]  # type: ignore[arg-type, return-value]

    class Wider(Trailing):
        def remembered(self) -> Any:
            return {name: leaf[:6] for name, leaf in super().remembered().items()}

        def loss(self, params: Any, batch: Any, key: Any, remembered: Any = None) -> Any:
            six = {name: rows[:6] for name, rows in batch.items()}
            return super().loss(params, six, key, remembered)

        def evaluate(self, params: Any, split: str, rows: int = 0) -> dict[str, float]:
            return {"loss": 1e3}

    Wider.weight = lambda self, batch: batch["real"][:6].sum()  # type: ignore[method-assign, assignment]
    child(tmp_path / "child", parent, Wider(), until=7)
    child(tmp_path / "child", parent, Wider())
    folder = tmp_path / "child"
    assert (folder / BEFORE).read_bytes() == before
    steps = [record["step"] for record in read_records(folder / "metrics.jsonl")]
    assert min(steps) == 8 and max(steps) == 12
    assert Checkpoints(folder / "checkpoints", 1, read_only=True).best == 9


def test_a_parent_that_has_gone_or_changed_is_one_line(tmp_path: Path) -> None:
    run(tmp_path / "short", settings(training__steps=6, **CONSTANT))
    parent = lineage(tmp_path / "short", 6, joined=True)
    other = Manifest.build({"seed": 1}, devices={}, data={}, command=[])
    other.write(tmp_path / "short")
    for _ in range(2):
        with pytest.raises(UserError, match="goes on from step 6 of .*short, which cannot be cop"):
            child(tmp_path / "child", parent)
        (tmp_path / "short" / "manifest.json").unlink(missing_ok=True)
    assert not (tmp_path / "child" / "metrics.jsonl").exists()


@pytest.mark.quick
def test_folder_and_step() -> None:
    assert parse_run("runs/a@600") == (Path("runs/a"), 600)
    assert parse_run("runs/me@home") == (Path("runs/me@home"), None)
