"""A run says on which devices and in which precision it computes, names those that
it does not use, and keeps freed memory."""

import os
import platform
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from attnlab.training import devices
from tests.commands.tiny import alone

MESH = SimpleNamespace(mesh=SimpleNamespace(shape={"data": 2, "fsdp": 4, "tensor": 1}))


def test_cores_are_told_on_a_cpu_and_the_precision_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NPROC", "3")
    place: Any = SimpleNamespace(count=8, about={}, layout=MESH)
    assert devices.line(place, "float32") == "devices: 8 x cpu, mesh, data 2, fsdp 4, cores 3"
    card = SimpleNamespace(device_kind="NVIDIA H100", platform="gpu")
    monkeypatch.setattr(jax, "devices", lambda: [card])
    place.layout = None
    assert devices.line(place, "float32") == "devices: 8 x NVIDIA H100, pmap, precision float32"


def test_an_accelerator_that_nobody_uses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for file, hidden, asked, told in (
        ("/dev/nvidia0", "0", None, True),
        ("/dev/accel0", "", None, True),
        ("/dev/nvidia0", "", None, False),
        ("/dev/accel0", "0", "cpu", False),
        ("/dev/null", "0", None, False),
    ):
        monkeypatch.setattr(jax, "config", SimpleNamespace(jax_platforms=asked))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        monkeypatch.setattr(devices, "glob", lambda text, file=file: [file] * (text[:9] in file))
        assert (f"{file} is there, but JAX computes on the CPU" in str(devices.unused())) == told


PROGRAM = """
import ctypes, resource
from attnlab.training.devices import keep_freed
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
    kept, count = map(int, alone(PROGRAM, env={**own, **environment}).split())
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
