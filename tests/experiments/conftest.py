"""One real sweep for all tests that look at what a sweep leaves."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import sampling
from tests.experiments import real
from tests.experiments.plan.planning import inside, quick, uncounted

__all__ = ["inside", "quick", "uncounted"]

ENDS = {"additive": "done", "broken": "failed"}
VARIANTS: dict[str, dict[str, object]] = {
    "additive": {},
    "broken": {"system.attention": "broken_for_a_test:Broken"},
}
if sampling.full_mode():
    ENDS |= {"general": "done", "wild": "diverged"}
    VARIANTS["general"] = {"system.attention.score": "general"}
    VARIANTS["wild"] = {"optimizer": "sgd", "schedule.peak": 1e38, "training.clip": 0.0}
DONE = [variant for variant, end in ENDS.items() if end == "done"]


class Swept(NamedTuple):
    """A sweep that ended: where it was launched, its folder, its file, the exit code and what it
    printed. Only to be read.
    """

    cwd: Path
    directory: Path
    file: str
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def swept(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Swept:
    """A variant that trains and one that fails, in the full mode also another that trains and one
    that diverges, two seeds each, in two slots; run once for all workers.
    """
    folder = made_once("swept", _sweep)
    ended = json.loads((folder / "ended.json").read_text())
    return Swept(folder, folder / "sweep", str(folder / "which.py"), *ended)


def _sweep(folder: Path) -> None:
    """Runs that sweep in `folder/sweep`, and stores how its command ended."""
    (folder / "broken_for_a_test.py").write_text(real.BROKEN)
    lines = (f"compare=rows({VARIANTS})", "seeds=(0, 1)", 'measure=("exact", "max")')
    real.experiment(folder / "which.py", *lines, data__test="1")
    flags = (f"--dir={folder / 'sweep'}", "--slots=2", "--accept-failed")
    done = real.launch("sweep", folder / "which.py", *flags, cwd=folder)
    ended = [done.returncode, done.stdout, done.stderr]
    (folder / "ended.json").write_text(json.dumps(ended))


@pytest.fixture
def copy(swept: Swept, tmp_path: Path) -> Path:
    """A copy of that sweep's folder, to be changed."""
    return Path(shutil.copytree(swept.directory, tmp_path / "sweep"))
