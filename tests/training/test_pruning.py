"""Pruning keeps what a run is used with, to the last bit, killed at whatever instant."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.records.manifest import Manifest
from attnlab.tasks import TASKS
from attnlab.training.orbax_steps import OrbaxSteps
from attnlab.training.pruning import Keep, prunable, prune, saved_steps
from attnlab.training.updates import best_params
from tests.refusals import check_refused

CHANGES: tuple[tuple[Any, str], ...] = (
    *((Path, name) for name in ("rename", "mkdir")),
    *((Manifest, "write"), (OrbaxSteps, "write"), (OrbaxSteps, "wait"), (shutil, "rmtree")),
)
"""What changes the disk."""
KEEPS = pytest.mark.parametrize("keep", ["best", "best-params"])


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def folder(searched: Path, tmp_path: Path) -> Path:
    """A copy of a finished run with the states 8 and 12."""
    return Path(shutil.copytree(searched, tmp_path / "run"))


@pytest.fixture(scope="module")
def read(runs: Any) -> Callable[[Path], list[np.ndarray]]:
    """Reads the parameters that a copy of that run is used with."""
    manifest = Manifest.read(runs("rnnsearch")[0])
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
            prune(folder, keep)
        except Killed:
            return True
    return False


@KEEPS
def test_a_kill_at_any_change_leaves_a_run_that_is_used_as_before(
    keep: Keep, searched: Path, read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, number, going = read(searched), 0, True
    while going:
        number += 1
        folder = Path(shutil.copytree(searched, tmp_path / str(number)))
        going = killed(folder, keep, number, monkeypatch)
        assert all(map(np.array_equal, read(folder), expected)), f"killed at change {number}"
        prune(folder, keep)  # again, to the end
        assert all(map(np.array_equal, read(folder), expected))
        assert prunable(folder, keep)[1] == prunable(folder, "best")[1] == []
    assert number > 3
    manifest = Manifest.read(folder)
    assert manifest is not None and manifest.pruned == keep
    manifest.check_states(folder, keep)
    check_refused(r"was pruned \(--keep=.* gone, so it cannot go on", manifest.check_states, folder)


@KEEPS
def test_a_damaged_state_or_a_full_disk_costs_nothing_more(
    keep: Keep, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    (folder / "checkpoints" / "link").symlink_to(folder / "checkpoints" / "8")
    if keep == "best-params":
        with monkeypatch.context() as patched, pytest.raises(UserError, match="no space left"):
            patched.setattr(OrbaxSteps, "write", full)
            prune(folder, keep)
    for file in (folder / "checkpoints/12/state").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:-9])
    check_refused("damaged", prune, folder, keep)
    assert saved_steps(folder / "checkpoints") == [8, 12] and not saved_steps(folder / "params")
    assert json.loads((folder / "manifest.json").read_text())["pruned"] is None
    assert "link" not in [path.name for path in prunable(folder, keep)[1]]
