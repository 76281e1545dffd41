"""Shared by all tests: four CPU devices, code compiled with little optimising (which saves more
than half of the time), and a compile cache, so that equal programs compile once for all workers.
"""

import ctypes
import dataclasses
import fcntl
import functools
import gc
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.flags import FAST

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (  # yours come last, so they count
    f"--xla_force_host_platform_device_count=4 {FAST} {os.environ.get('XLA_FLAGS', '')}"
)
os.environ.setdefault("ATTNLAB_CACHE", os.path.join(tempfile.gettempdir(), "attnlab-tests-cache"))

import jax
import pytest

from attnlab import progress
from attnlab.analysis import results
from tests import sampling, shapes
from tests.commands.tiny import CommandResult, Runs, arguments, run_command

jax.config.update("jax_compilation_cache_dir", os.path.join(os.environ["ATTNLAB_CACHE"], "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
shapes.share_shapes()
progress.PATIENCE = 3600.0  # a busy machine adds no line to what a command prints
MakeOnce = Callable[[str, Callable[[Path], None]], Path]
PICTURED, results.PICTURED = results.PICTURED, 0
"""Test examples whose maps are drawn after training: pictures are half of a small run, so they are
drawn only where they are what is tested.
"""


LONG = """
systems/test_systems attention/test_conformance attention/test_memories attention/test_mixer
experiments/run/test_scoring faults/test_faults experiments/test_experiment_files
training/test_kill_resume attention/test_kernels experiments/run/test_worker test_bad_input
test_doc_pages mixers/test_whole tasks/test_configs commands/test_train training/test_parallel
training/test_stacked
"""
"""Files that take longest: they come first, so that no worker waits for another at the end."""


OWN = {
    "mechanism": ("CLASS", "mechanisms"),
    "system": ("CLASS", "systems of its kind"),
    "score": ("SCORE", "scores"),
    "alignment": ("ALIGNMENT", "alignments"),
    "positions": ("SCHEME", "schemes"),
}
"""Flags that name something of a user's own: what, and whose promises it is to have."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file belongs to one worker (unless `--dist` says something else): its fixtures are made and
    its programs compiled once.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # by `LONG`, not by the number of tests
    return LoadFileScheduling(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Says which cases this run draws, in quiet runs too."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"attnlab {sampling.describe()}")


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Says what has been shown of something of a user's own, if every test passed."""
    passed = terminalreporter.stats.get("passed", [])
    tests = (re.sub(r".*::test_|\[.*", "", report.nodeid).replace("_", " ") for report in passed)
    shown = "; ".join(dict.fromkeys(tests))
    for flag in OWN:
        if (path := config.getoption(flag)) and shown and not exitstatus:
            terminalreporter.write_line(f"certified: {flag} {path}: {shown}")


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draws the sample, and puts the files that take longest first."""
    if not any(map(config.getoption, OWN)):
        items[:], left_out = sampling.sample(items)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
    place = {f"tests/{name}.py": number for number, name in enumerate(LONG.split())}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector of cycles need not look through it again and
    again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Flags for a mechanism or a system of one's own, and its oracle."""
    group = parser.getgroup("attnlab")
    for flag, (metavar, kind) in OWN.items():
        meaning = f"run the promises of all {kind} over this one, and nothing else"
        group.addoption(f"--{flag}", metavar=f"MODULE:{metavar}", help=meaning)
    meaning = "the float64 reference of either; without it `oracle` beside the class"
    group.addoption("--oracle", metavar="MODULE:FUNCTION", help=meaning)


@pytest.fixture(autouse=True, scope="module")
def clear_programs() -> Iterator[None]:
    """What a file has compiled is dropped after it and its room given back: thousands of programs
    would fill gigabytes, and one traced from sound code would hide a fault put in by another file.
    """
    yield
    jax.clear_caches()
    shapes.forget_shapes()
    # glibc keeps what was freed; others have no such function, nor need it
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """`made_once(name, make)`: a folder that `make(folder)` filled, once for all workers; it is only
    to be read.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name: str, make: Callable[[Path], None]) -> Path:
        folder = shared / f"made-{name}"
        finished = folder.with_suffix(".finished")
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                finished.touch()
        return folder

    return make_once


@pytest.fixture(scope="session")
def runs(made_once: MakeOnce, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """`runs(system)`: the workdir of a finished run and how its command ended; trained once for all
    workers, and each has a copy of its own.
    """

    @functools.cache
    def run(system: str) -> tuple[Path, CommandResult]:
        folder = made_once(system, functools.partial(_train, system))
        workdir = Path(shutil.copytree(folder / "run", tmp_path_factory.mktemp(system) / "run"))
        return workdir, CommandResult(**json.loads((folder / "ended.json").read_text()))

    return run


def _train(system: str, folder: Path) -> None:
    """Trains a tiny model of a system in `folder/run`, and stores how the command ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "PICTURED", PICTURED if system == "rnnsearch" else 1)
        ended = run_command(arguments(system, folder / "run"))
    assert ended.code == 0, ended.err
    (folder / "ended.json").write_text(json.dumps(dataclasses.asdict(ended)))


@pytest.fixture(params=["rnnsearch", pytest.param("transformer", marks=pytest.mark.full)])
def trained(request: pytest.FixtureRequest, runs: Runs) -> Path:
    """The workdir of a finished run of each system."""
    return runs(request.param)[0]


@pytest.fixture
def searched(runs: Runs) -> Path:
    """The workdir of a finished RNNsearch run, where one system is enough."""
    return runs("rnnsearch")[0]


@pytest.fixture
def float64() -> Iterator[None]:
    """Arrays may be float64 for the length of a test; what is computed from such is float64
    (`attnlab.layers.dense`).
    """
    with jax.enable_x64(True):
        yield
