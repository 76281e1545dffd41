"""A run says on which devices and in which precision it computes, and names those that it does not use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import pytest

from attnlab.training import devices

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
