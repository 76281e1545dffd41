"""Applies faults one at a time, each in a process of its own where only the import of one module is
changed, and runs its tests.

A server loads JAX, Flax and pytest once and is forked for every run, before any backend starts. The
working tree is never touched.
"""

import contextlib
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests import sampling
from tests.faults.fault import ROOT, SOURCES, Fault, Stale, parse_choice, selects

NOTHING_COLLECTED = int(pytest.ExitCode.NO_TESTS_COLLECTED)  # the sample may lack what is named
DECIDED = ("caught", "survived")
_LOADED = "jax jax.numpy jax.test_util flax.linen flax.struct flax.traverse_util numpy pytest"
LOADED_ONCE = _LOADED.split()
QUIET = "-q -x --no-header --tb=line -p no:cacheprovider -p no:xdist"
BYTECODE = os.path.join(tempfile.gettempdir(), f"attnlab-faults-bytecode-{os.getuid()}")


@dataclasses.dataclass(frozen=True)
class Run:
    """What one call of pytest came to.

    Attributes:
      code: its exit status; None where it ran out of time or died.
      failed: ids of the tests that failed; passed: of those that passed.
      output: the end of what it printed.
    """

    code: int | None
    failed: list[str]
    passed: list[str]
    output: str


@dataclasses.dataclass
class Result:
    """What became of a fault.

    Attributes:
      name: of the fault.
      status: "caught", "survived", "out of time", "stale" (the old text is gone), "broken" (nothing
        can be said: the code does not import, or a test selects nothing or fails without the fault
        as well).
      test: the id of the test that noticed.
      detail: why nothing can be said.
      seconds: it took.
      digest: of fault, code and tests.
      sampled: judged by the sample of a default run, not by all tests.
    """

    name: str
    status: str
    test: str = ""
    detail: str = ""
    seconds: float = 0.0
    digest: str = ""
    sampled: bool = False


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from another text than its file holds; nothing is cached."""

    text: str

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with the fault in it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.text = fault.source()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.fault.module:
            return None
        loader = _Loader(fullname, str(SOURCES / self.fault.file))
        loader.text = self.text
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


class _Recorder:
    """A plugin of pytest: keeps the tests whose ids have the words asked for, of those that this
    kind of run draws, and notes what passes and what fails.
    """

    def __init__(self, keep: Callable[[str], bool]) -> None:
        self.keep = keep
        self.failed: list[str] = []
        self.passed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> Iterator[None]:
        yield  # the sample is drawn from whole files
        items[:] = [item for item in items if self.keep(item.nodeid)]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)


def _run_in_child(fault: Fault | None, choice: str, folder: str) -> None:
    """In a forked process: pytest on the tests asked for until one fails, the outcome as JSON in a
    folder.
    """
    with open(os.path.join(folder, "output"), "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # compiled once for all runs, and not beside the sources
    sys.dont_write_bytecode, sys.pycache_prefix = (False, BYTECODE)
    for name in list(sys.modules):  # what the command itself needs of the package
        if name.partition(".")[0] in ("attnlab", "tests"):
            del sys.modules[name]
    if fault is not None:
        sys.meta_path.insert(0, _Finder(fault))
    tests, chosen = _selection(choice)
    recorder = _Recorder(chosen)
    code = pytest.main([*QUIET.split(), "--rootdir", str(ROOT), tests], plugins=[recorder])
    with open(os.path.join(folder, "outcome"), "w") as file:
        json.dump({"code": int(code), "failed": recorder.failed, "passed": recorder.passed}, file)


def _selection(choice: str) -> tuple[str, Callable[[str], bool]]:
    """The file of a choice of tests, one test's id or as in a list of faults, and whether it takes
    a test.
    """
    if "::" in choice:
        return choice.partition("::")[0], lambda test: test == choice
    file, words = parse_choice(choice)
    if (ROOT / file).is_dir():
        return file, lambda _: True
    return file, lambda test: test.startswith(f"{file}::") and selects(words, test)


def run_choice(fault: Fault | None, choice: str, limit: float) -> Run:
    """Runs tests with a fault in the code, or with none, until one fails or `limit` seconds are
    over.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when the server loads JAX
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        # not a daemon, which may have no children: a chat template is rendered by one
        process = context.Process(target=_run_in_child, args=(fault, choice, folder))
        process.start()
        try:
            process.join(max(limit, 0.0))
        finally:
            process.kill()
            process.join()
        written = Path(folder, "output")
        output = written.read_text()[-2000:] if written.is_file() else ""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return Run(**json.loads(Path(folder, "outcome").read_text()), output=output)
        return Run(None, [], [], output)


class Session:
    """Judges faults; remembers which of the tests that noticed pass without any.

    Attributes:
      limit: seconds for each fault.
      reach: the tests that are asked: "named" by a fault, those and the ones of its "part" of the
        package, or "everything".
      sound: ids of tests that pass without a fault; spoilt: of tests that do not.
    """

    def __init__(self, limit: float = 300.0, reach: str = "part") -> None:
        self.limit = limit
        self.reach = reach
        self.sound: set[str] = set()
        self.spoilt: set[str] = set()
        self._lock = threading.Lock()

    def judge(self, fault: Fault) -> Result:
        """Runs the tests of a fault until one fails; that test must pass without the fault."""
        begun = time.monotonic()
        try:
            digest = fault.digest()
        except Stale as error:
            return Result(fault.name, "stale", detail=str(error))
        result = Result(fault.name, "survived", digest=digest, sampled=not sampling.full_mode())
        stages = fault.stages(self.reach == "everything")
        for choice in fault.tests if self.reach == "named" else stages:
            run = run_choice(fault, choice, self.limit - (time.monotonic() - begun))
            if run.code is None:
                result.status, result.detail = "out of time", f"in {choice}"
            elif run.code == 1 and run.failed:
                self._decide(result, run.failed[0])
            elif run.code != 0 and not (run.code == NOTHING_COLLECTED and not sampling.full_mode()):
                end = run.output.strip()[-300:]
                result.status = "broken"
                result.detail = f"pytest ended with {run.code} on {choice}: {end}"
            if result.status != "survived":
                break
        result.seconds = round(time.monotonic() - begun, 2)
        return result

    def _decide(self, result: Result, test: str) -> None:
        """Caught, if the test passes without the fault."""
        if test not in self.sound | self.spoilt:
            run = run_choice(None, test, self.limit)
            with self._lock:
                (self.sound if test in run.passed else self.spoilt).add(test)
        result.test = test
        result.status = "caught" if test in self.sound else "broken"
        result.detail = "" if test in self.sound else f"{test} fails without the fault too"


def judge_all(
    session: Session, faults: Sequence[Fault], jobs: int
) -> Iterable[tuple[Fault, Result]]:
    """The faults and what became of them, as they are done."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(session.judge, fault): fault for fault in faults}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)
