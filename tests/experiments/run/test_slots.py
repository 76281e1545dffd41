"""Shares of a machine: cores and GPUs, found without jax."""

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from attnlab.experiments.run import slots
from attnlab.experiments.run.slots import Slot, local_slots, share, with_planned_cores
from tests.experiments import real, stub
from tests.refusals import check_refused


@pytest.mark.quick
@pytest.mark.parametrize(("count", "cores"), [(1, 4), (2, 2), (3, 8), (4, 64), (5, 5)])
def test_cores_are_shared_out_whole_and_evenly(count: int, cores: int) -> None:
    names = list(range(10, 10 + cores))
    made = share(count, names, ())
    assert sorted(core for slot in made for core in slot.cores) == names
    sizes = {len(slot.cores) for slot in made}
    assert max(sizes) - min(sizes) <= 1 and [slot.number for slot in made] == list(range(count))
    assert all(slot.environment == {"OMP_NUM_THREADS": str(len(slot.cores))} for slot in made)


def test_more_slots_than_cores_share_them() -> None:
    assert [slot.cores for slot in share(4, [0, 1], ())] == [(0,), (0,), (1,), (1,)]


@pytest.mark.parametrize(
    ("count", "gpus", "each", "visible", "memory"),
    [
        (2, "01", 1, ["0", "1"], {None}),
        (4, "01", 1, ["0", "1", "0", "1"], {"0.450"}),
        (2, "0123", 2, ["0,1", "2,3"], {None}),
        (2, "012", 2, ["0,1", "2,0"], {"0.450"}),
    ],
)
def test_gpus_go_in_turn_and_their_memory_is_divided(
    count: int, gpus: str, each: int, visible: list[str], memory: set[str | None]
) -> None:
    used = [slot.environment for slot in share(count, range(8), list(gpus), each)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in used] == visible
    assert {one.get("XLA_PYTHON_CLIENT_MEM_FRACTION") for one in used} == memory


def test_the_local_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One a core, unless a container may use fewer or somebody wants another number."""
    monkeypatch.setattr(slots, "usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(slots, "usable_gpus", lambda: [])
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(slots, "_QUOTA", quota)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for text, count in (("max 100000\n", 4), ("150000 100000\n", 2), ("50000 100000\n", 1)):
        quota.write_text(text)
        assert len(local_slots()) == count
    assert [slot.cores for slot in local_slots(1)] == [(0, 1, 2, 3)]
    monkeypatch.setattr(slots, "usable_gpus", lambda: ["0", "1", "2"])
    assert len(local_slots()) == 3 and len(local_slots(2)) == 2
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in local_slots(devices=2)] == ["0,1"]
    check_refused("4 devices a trial: there are 3 GPUs here; ask for fewer", local_slots, devices=4)
    check_refused("--devices-per-trial=0: expected a whole number from 1", local_slots, devices=0)
    monkeypatch.setattr(slots, "usable_gpus", lambda: [])
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_force_host_platform_device_count=8")
    quota.write_text("max 100000\n")
    first, second = local_slots(devices=2)
    assert (first.cores, second.cores) == ((0, 1), (2, 3))
    assert first.environment["XLA_FLAGS"] == "--xla_a=1 --xla_force_host_platform_device_count=2"
    check_refused("--slots=0: expected a whole number from 1 to 1024", local_slots, 0)
    assert [slot.cores for slot in local_slots(least=3)] == [(0, 1, 2, 3)]


def test_slots_have_the_cores_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of theirs; fewer are refused, or accepted and recorded. With GPUs none of it."""
    given = share(2, range(5), ())
    monkeypatch.setattr(slots, "usable_gpus", lambda: ["0"])
    assert slots.planned_cores(given) is None and with_planned_cores(given, 3) == given
    monkeypatch.setattr(slots, "usable_gpus", lambda: [])
    assert slots.planned_cores(given) == 2 and with_planned_cores(given, None) == given
    assert [slot.cores for slot in with_planned_cores(given, 2)] == [(0, 1), (2, 3)]
    two = {"OMP_NUM_THREADS": "2", "NPROC": "2"}
    slots_of_two = with_planned_cores(given, 2)
    assert all(slot.environment == two and not slot.planned for slot in slots_of_two)
    words = "was planned with 3 cores, and a slot here has 2; .* or --accept-cores"
    check_refused(words, with_planned_cores, given, 3)
    less, enough = with_planned_cores(given, 3, accept=True)
    assert (less.cores, less.environment["NPROC"]) == ((0, 1), "3")
    assert less.use["planned_cores"] == 3
    assert len(enough.cores) == 3 and "planned_cores" not in enough.use


class Plugin:
    name = "xla_cuda12"


def test_gpus_are_found_without_jax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only where jax has a plugin for them and is not told to leave them; CUDA_VISIBLE_DEVICES is
    kept to.
    """
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\necho 0\necho 1\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plugins = lambda group: [Plugin] if group == "jax_plugins" else []
    monkeypatch.setattr(slots.importlib.metadata, "entry_points", plugins)
    assert slots.usable_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,5")
    assert slots.usable_gpus() == ["1", "5"]
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert slots.usable_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for platforms, found in (("cpu", []), ("cuda,cpu", ["0", "1"]), ("tpu", [])):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        assert slots.usable_gpus() == found
    monkeypatch.delenv("JAX_PLATFORMS")
    script.write_text("#!/bin/sh\nexit 9\n")
    assert slots.usable_gpus() == []
    monkeypatch.setattr(slots.importlib.metadata, "entry_points", lambda group: [])
    script.write_text("#!/bin/sh\necho 0\n")
    assert slots.usable_gpus() == []


def test_entering_binds_the_process_and_its_threads() -> None:
    """XLA sizes its pools by what the process may use; a thread that is there already must not keep
    to other cores.
    """
    code = """
import os, threading, time
from attnlab.experiments.run.slots import Slot
found = []
go = threading.Event()
thread = threading.Thread(target=lambda: (go.wait(), found.append(os.sched_getaffinity(0))))
thread.start()
core = max(os.sched_getaffinity(0))
import jax  # as the server has, without starting it
Slot(0, (core,), {"OMP_NUM_THREADS": "1", "NPROC": "5"}).with_devices(3).enter()
go.set()
thread.join()
assert os.sched_getaffinity(0) == found[0] == {core} and os.environ["OMP_NUM_THREADS"] == "1"
assert jax.local_device_count() == 3
(jax.numpy.ones((99, 99)) @ jax.numpy.ones((99, 99))).block_until_ready()
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
assert sum("XLAEigen" in name for name in names) == 5, names  # as many threads as NPROC
"""
    done = real.python("-c", code)
    assert done.returncode == 0, done.stderr


def test_a_slot_without_cores_binds_nothing() -> None:
    before = os.sched_getaffinity(0)
    Slot(0).enter()
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("asked", "number", "cores"),
    [
        (None, 1, (2, 3, 5, 7)),
        ("2", 0, (2, 3)),
        ("2", 1, (5, 7)),
        ("2", 2, (2, 3)),
        ("3", 1, (2, 3, 7)),
        ("9", 0, (2, 3, 5, 7)),
    ],
)
def test_a_worker_uses_what_it_was_given(
    asked: str | None, number: int, cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "usable_cores", lambda: [2, 3, 5, 7])
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if asked is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", asked)
    slot = slots.allotted(number)
    assert slots.allotted(number, len(cores)) == slot
    assert slot.number == number and slot.cores == cores
    assert slot.environment == {"OMP_NUM_THREADS": str(len(cores))}


def test_the_devices_that_configs_name(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    configs = ({"parallel": {"devices": number}} for number in (0, 4))
    assert slots.devices_wanted(plan) is None
    pairs = zip(plan.candidates, configs, strict=True)
    candidates = (dataclasses.replace(one, config=config) for one, config in pairs)
    assert slots.devices_wanted(dataclasses.replace(plan, candidates=tuple(candidates))) == 4
    searched = dataclasses.replace(plan, candidates=(), base={"parallel.devices": 2})
    assert slots.devices_wanted(searched) == 2
