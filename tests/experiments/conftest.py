"""One real sweep for all tests that look at what a sweep leaves."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.experiments import real

COMPARED = """compare=rows({
            "additive": {},
            "general": {"system.attention.score": "general"},
            "broken": {"system.attention": "broken_for_a_test:Broken"},
            "wild": {"optimizer": "sgd", "schedule.peak": 1e38, "training.clip": 0.0},
        })"""


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
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Two variants that train, one that fails and one that diverges, two seeds each, in two slots;
    run once for all test processes.
    """
    base = tmp_path_factory.getbasetemp()
    cwd = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "swept"
    cwd.mkdir(exist_ok=True)
    file, ended = cwd / "which.py", cwd / "ended.json"
    with open(cwd / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ended.exists():
            (cwd / "broken_for_a_test.py").write_text(real.BROKEN)
            lines = (COMPARED, "seeds=(0, 1)", 'measure=("exact", "max")')
            real.experiment(file, *lines, data__test="1")
            done = real.launch(
                "sweep", file, f"--dir={cwd / 'sweep'}", "--slots=2", "--accept-failed", cwd=cwd
            )
            ended.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    return Swept(cwd, cwd / "sweep", str(file), *json.loads(ended.read_text()))


@pytest.fixture
def copy(swept: Swept, tmp_path: Path) -> Path:
    """A copy of that sweep's folder, to be changed."""
    return Path(shutil.copytree(swept.directory, tmp_path / "sweep"))
