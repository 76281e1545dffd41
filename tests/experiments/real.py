"""Sweeps of real trials, as small as they come, started as a user starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Plan
from tests.experiments import plans
from tests.flags import FAST

ROOT = Path(__file__).resolve().parents[2]

BROKEN = '''
"""A mechanism that builds, and fails when it is trained."""

import multiprocessing

from attnlab.attention.mechanisms.single import Single


class Broken(Single):
    """Breaks in a trial."""

    def read(self, *given):
        if multiprocessing.current_process().name != "planning":
            raise RuntimeError("broken on purpose")
        return super().read(*given)
'''


def environment() -> dict[str, str]:
    """That of a user with CPUs and this package, who would rather compile fast than run fast."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "XLA_"))
    }
    return kept | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "XLA_FLAGS": FAST}


def command(*argv: str | Path) -> list[str]:
    """`python launch.py ...`."""
    return [sys.executable, "-W", "ignore", str(ROOT / "launch.py"), *map(str, argv)]


def launch(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """How a command of `launch.py` ended."""
    return python(*command(*argv)[3:], cwd=cwd)


def python(*argv: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """How `python ...` ended."""
    line = [sys.executable, "-W", "ignore", *map(str, argv)]
    kept: dict[str, Any] = {"capture_output": True, "text": True, "env": environment()}
    return subprocess.run(line, cwd=cwd, timeout=900, check=False, **kept)


PERFORM = """
import sys
from pathlib import Path
from attnlab.experiments.run.jobs import Job, named, perform

directory, kind, *names = sys.argv[1:]
sys.exit(perform(Path(directory), Job(kind, tuple(named(directory, name) for name in names))))
"""


def perform(directory: Path, kind: str, *names: str) -> subprocess.CompletedProcess[str]:
    """How a process that does a job, of trials by their names, ended."""
    return python("-c", PERFORM, directory, kind, *names)


def experiment(path: Path, *lines: str, **base: Any) -> str:
    """An experiment file; `base` overrides the tiny run's settings, "__" for a dot."""
    changes = {key.replace("__", "."): value for key, value in base.items()}
    base = {**plans.BASE, "parallel.devices": "1", **changes}
    return plans.experiment_file(path, *lines, base=base)


plan = Plan.of_sweep


def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text())
