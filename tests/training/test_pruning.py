"""Pruning keeps what a run is used with, to the last bit, killed at whatever instant."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.records import states
from attnlab.records.manifest import Manifest
from attnlab.records.states import Keep
from attnlab.tasks import TASKS
from attnlab.training import pruning
from attnlab.training.orbax_steps import OrbaxSteps
from attnlab.training.updates import best_params

KEEPS: tuple[Keep, ...] = ("best", "best-params")


CHANGES: tuple[tuple[Any, str], ...] = (
    *((Path, name) for name in ("rename", "mkdir")),
    *((Manifest, "write"), (OrbaxSteps, "write"), (OrbaxSteps, "wait"), (shutil, "rmtree")),
)
"""What changes the disk."""


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def read(runs: Any) -> Callable[[Path], list[np.ndarray]]:
    """Reads the parameters that a copy of a tiny run is used with."""
    manifest = Manifest.read(runs("rnnsearch")[0])
    assert manifest is not None
    config = configs.prepare(configs.from_dict(manifest.config), [])
    task = TASKS.resolve(config.task).load(config, runs("rnnsearch")[0], ())
    return lambda folder: jax.tree.leaves(best_params(config, task, folder)[0])


def killed(folder: Path, keep: Keep, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Prunes a run and is killed at the n-th change of the disk, in the middle of it where that
    removes a folder; whether there were so many.
    """
    changes = 0

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **how: Any) -> Any:
            nonlocal changes
            changes += 1
            if changes < number:
                return change(*args, **how)
            if change is shutil.rmtree and changes == number:
                for path in [path for path in Path(args[0]).rglob("*") if path.is_file()][::2]:
                    path.unlink()
            raise Killed

        return counted

    with monkeypatch.context() as patched:
        for owner, name in CHANGES:
            patched.setattr(owner, name, dying(getattr(owner, name)))
        try:
            pruning.prune(states.prunable(folder, keep))
        except Killed:
            return True
    return False


@pytest.mark.parametrize("keep", KEEPS)
def test_a_kill_at_any_change_leaves_a_run_that_is_used_as_before(
    keep: Keep, searched: Path, read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, number, going = read(searched), 0, True
    while going:
        number += 1
        folder = Path(shutil.copytree(searched, tmp_path / str(number)))
        going = killed(folder, keep, number, monkeypatch)
        assert all(map(np.array_equal, read(folder), wanted)), f"killed at change {number}"
        pruning.prune(states.prunable(folder, keep))  # again, to the end
        assert all(map(np.array_equal, read(folder), wanted))
        assert not states.prunable(folder, keep).take
        assert not list((folder / "checkpoints").glob("deleting-*"))
    assert number > 3
    manifest = Manifest.read(folder)
    assert manifest is not None and manifest.pruned is not None
    assert manifest.pruned["keep"] == keep


@pytest.mark.parametrize("keep", KEEPS)
def test_a_damaged_state_costs_nothing_more(keep: Keep, searched: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(searched, tmp_path / "run"))
    for file in (folder / "checkpoints/12/state").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match="damaged .*nothing is taken"):
        pruning.prune(states.prunable(folder, keep))
    assert states.saved_steps(folder / "checkpoints") == [8, 12]
    manifest = Manifest.read(folder)
    assert manifest is not None and manifest.pruned is None


def test_a_full_disk_costs_nothing(
    searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(searched, tmp_path / "run"))

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OrbaxSteps, "write", full)
    with pytest.raises(UserError, match="no space left on its disk"):
        pruning.prune(states.prunable(folder, "best-params"))
    assert states.saved_steps(folder / "checkpoints") == [8, 12]
    assert not (folder / "params").exists()
