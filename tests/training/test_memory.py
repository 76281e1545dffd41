"""Freed memory stays with the process, unless its user says otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from attnlab.training.memory import keep_freed
kept = keep_freed()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for turn in range(2):
    before = faults()
    block = libc.malloc(80 << 20)
    libc.memset(block, 1, 80 << 20)
    libc.free(block)
print(int(kept), faults() - before)
"""


def faults(**environment: str) -> tuple[bool, int]:
    """Whether freed memory is kept, and how many pages a block of 80 MiB costs the second time."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    own.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**own, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, count = map(int, done.stdout.split())
    return bool(kept), count


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_a_block_that_was_freed_costs_no_pages_again() -> None:
    kept, count = faults()
    assert kept
    assert count < 100


def test_who_sets_the_heap_by_variables_is_left_alone() -> None:
    kept, count = faults(MALLOC_ARENA_MAX="2")
    assert not kept
    if platform.libc_ver()[0] == "glibc":
        assert count > 30  # huge pages, where the system gives them, are 2 MiB each
