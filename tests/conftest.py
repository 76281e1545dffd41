"""Shared by all tests: four CPU devices, code compiled with little optimising (which saves more
than half of the time), and a compile cache, so that equal programs compile once for all workers.
"""

import ctypes
import gc
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.flags import FAST

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (  # yours come last, so they count
    f"--xla_force_host_platform_device_count=4 {FAST} {os.environ.get('XLA_FLAGS', '')}"
)
os.environ.setdefault(
    "ATTNLAB_CACHE", str(pathlib.Path(tempfile.gettempdir()) / "attnlab-tests-cache")
)

import jax
import pytest

from tests.commands.tiny import Called, arguments, called

jax.config.update("jax_compilation_cache_dir", os.path.join(os.environ["ATTNLAB_CACHE"], "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


FULL = 3 * 2**29
"""Bytes of memory from which on a test process forgets what it has compiled."""


def resident() -> int:
    """Bytes of memory this process occupies; where that cannot be read, as many as are too many."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return FULL


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
    group.addoption(
        "--mechanism",
        metavar="MODULE:CLASS",
        help="run the promises of all mechanisms over this one, and nothing else",
    )
    group.addoption(
        "--system",
        metavar="MODULE:CLASS",
        help="run the promises of all systems of its kind over this one, and nothing else",
    )
    group.addoption(
        "--oracle",
        metavar="MODULE:FUNCTION",
        help="the float64 reference of either; without it `oracle` beside the class",
    )


@pytest.fixture(autouse=True, scope="module")
def programs_forgotten() -> Iterator[None]:
    """What was compiled is dropped, and its room given back, after the file in which the process
    has grown large: thousands of programs would fill gigabytes.
    """
    yield
    if resident() < FULL:
        return
    jax.clear_caches()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(
        0
    )  # glibc keeps what was freed; others have no such function, nor need it


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Called]]:
    """`runs(system)`: the workdir of a finished run and how its command ended; trained on first
    use.
    """
    finished: dict[str, tuple[Path, Called]] = {}

    def trained(system: str) -> tuple[Path, Called]:
        if system not in finished:
            workdir = tmp_path_factory.mktemp(system) / "run"
            finished[system] = workdir, called(arguments(system, workdir))
            assert finished[system][1].code == 0, finished[system][1].err
        return finished[system]

    return trained


@pytest.fixture(params=["rnnsearch", "transformer"])
def trained(request: pytest.FixtureRequest, runs: Callable[[str], tuple[Path, Called]]) -> Path:
    """The workdir of a finished run of each system."""
    return runs(request.param)[0]


@pytest.fixture
def searched(runs: Callable[[str], tuple[Path, Called]]) -> Path:
    """The workdir of a finished RNNsearch run, where one system is enough."""
    return runs("rnnsearch")[0]


@pytest.fixture
def float64() -> Iterator[None]:
    """Arrays may be float64 for the length of a test; what is computed from such is float64
    (`attnlab.layers.precision`).
    """
    with jax.enable_x64(True):
        yield
