"""Slots: shares of this machine that trials run in, one at a time each; slots share no cores and no
GPUs if there are enough.

A slot binds its process before jax starts: to its cores (whose number is also that of XLA's
threads) and, with GPUs, to one or several of them through CUDA_VISIBLE_DEVICES. On CPUs XLA makes
several devices for a trial on the cores of the slot. Cores and GPUs are counted without jax.
"""

import contextlib
import dataclasses
import importlib.metadata
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan

_MEMORY = 0.9  # of a GPU, for all trials that share it
_HOST_DEVICES = "--xla_force_host_platform_device_count"
_THREADS = ("OMP_NUM_THREADS", "NPROC")  # what NumPy's libraries and XLA ask for their number
MOST_SLOTS = 1024  # slots, devices and cores
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclasses.dataclass(frozen=True)
class Slot:
    """A share of a machine.

    Attributes:
      number: from 0.
      cores: that its process may use; () for any.
      environment: set for its process, before jax is imported.
      planned: how many cores the plan gives a trial, where this slot has fewer and that was
        accepted; 0 elsewhere.
    """

    number: int
    cores: tuple[int, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    planned: int = 0

    @property
    def use(self) -> dict[str, Any]:
        """What a process in this slot may use, for its records."""
        use = {"slot": self.number, "cores": list(self.cores), "devices": dict(self.environment)}
        return {**use, "planned_cores": self.planned} if self.planned else use

    def with_devices(self, count: int) -> "Slot":
        """Returns this slot with XLA_FLAGS set so that XLA makes `count` devices of the CPU."""
        before = os.environ.get("XLA_FLAGS", "").split()
        flags = [flag for flag in before if not flag.startswith(_HOST_DEVICES)]
        new = {"XLA_FLAGS": " ".join([*flags, f"{_HOST_DEVICES}={count}"])}
        return dataclasses.replace(self, environment={**self.environment, **new})

    def enter(self) -> None:
        """Sets this process's environment to the slot's and binds all its threads to the slot's
        cores; called before jax starts a backend.
        """
        os.environ.update(self.environment)
        if self.cores and hasattr(os, "sched_setaffinity"):
            tasks = Path("/proc/self/task")
            for thread in os.listdir(tasks) if tasks.is_dir() else ["0"]:
                os.sched_setaffinity(int(thread), self.cores)


def local_slots(
    wanted: int | None = None, devices: int | None = None, least: int | None = None
) -> list[Slot]:
    """Returns the slots of this machine: `wanted` of them, by default one for every `devices` GPUs
    if jax can use GPUs, else one for every `devices` or `least` cores, the larger; raises
    `UserError` for a number out of range.

    Args:
      wanted: how many; None for as many as there is room for.
      devices: of a trial; None for one GPU, or on CPUs for what there is.
      least: cores of a trial on CPUs, if they are given.

    Raises:
      UserError: fewer than one is wanted or more than `MOST_SLOTS`, or more GPUs a trial than there
        are.
    """
    numbers = {"--slots": wanted, "--devices-per-trial": devices, "--cores-per-trial": least}
    for flag, number in numbers.items():
        if number is not None and not 1 <= number <= MOST_SLOTS:
            raise UserError(f"{flag}={number}: expected a whole number from 1 to {MOST_SLOTS}")
    cores, gpus, each = usable_cores(), usable_gpus(), devices or 1
    if gpus and each > len(gpus):
        raise UserError(
            f"{each} devices a trial: there are {len(gpus)} GPUs here; ask for fewer"
            " (--devices-per-trial, parallel.devices)"
        )
    if gpus:
        return share(wanted or len(gpus) // each, cores, gpus, each)
    count = min(len(cores), _quota()) // max(each, least or 1)
    slots = share(wanted or max(1, count), cores, ())
    return slots if devices is None else [slot.with_devices(devices) for slot in slots]


def share(count: int, cores: Sequence[int], gpus: Sequence[str], each: int = 1) -> list[Slot]:
    """Divides cores and GPUs among `count` slots and returns them: cores in blocks as equal as
    possible (shared only if there are too few), `each` GPUs per slot in rotation.
    """
    slots, most = [], math.ceil(count * each / len(gpus)) if gpus else 0
    for number in range(count):
        block = tuple(cores[number * len(cores) // count : (number + 1) * len(cores) // count])
        environment = {"OMP_NUM_THREADS": str(max(1, len(block)))}
        if gpus:
            mine = [gpus[(number * each + place) % len(gpus)] for place in range(each)]
            environment |= {"CUDA_VISIBLE_DEVICES": ",".join(mine)}
            if most > 1:
                environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_MEMORY / most:.3f}"
        slots.append(Slot(number, block or (cores[number * len(cores) // count],), environment))
    return slots


def allotted(number: int, wanted: int | None = None) -> Slot:
    """Returns the slot of worker `number` on a cluster: all cores of this process, or, if these are
    more than `wanted` (by default SLURM's number per task), `wanted` of them, which differ by
    `number`.
    """
    cores = usable_cores()
    wanted = wanted or int(os.environ.get("SLURM_CPUS_PER_TASK", len(cores)))
    if len(cores) > wanted:
        first = number * wanted % len(cores)
        cores = sorted({cores[(first + core) % len(cores)] for core in range(wanted)})
    return Slot(number, tuple(cores), {"OMP_NUM_THREADS": str(len(cores))})


def devices_wanted(plan: Plan) -> int | None:
    """Returns the largest `parallel.devices` in the configs of a plan's candidates (in its base if
    there are none), or None if that is at most 1.
    """
    configs: list[Mapping[str, Any]] = [candidate.config for candidate in plan.candidates]
    numbers = [config.get("parallel", {}).get("devices", 0) for config in configs]
    most = max(map(int, numbers or [plan.base.get("parallel.devices", 0)]))
    return most if most > 1 else None


def planned_cores(slots: Sequence[Slot]) -> int | None:
    """Returns the number of cores that a plan made for these slots gives each trial, that of the
    smallest slot; None where trials compute on GPUs.
    """
    return None if usable_gpus() else min(len(slot.cores) for slot in slots)


def with_planned_cores(
    slots: Sequence[Slot], cores: int | None, accept: bool = False
) -> list[Slot]:
    """Returns the slots limited to the `cores` that a plan gives each trial, with as many threads;
    unchanged on GPUs or for None; raises `UserError` if a slot has fewer, unless `accept`. Threads
    count because XLA divides sums by their number, and so they round.

    Args:
      slots: of some cores each.
      cores: of a trial; None in plans that do not say.
      accept: take a slot that has fewer, and record it.

    Raises:
      UserError: a slot has fewer.
    """
    if cores is None or usable_gpus():
        return list(slots)
    least = min(len(slot.cores) for slot in slots)
    if least < cores and not accept:
        raise UserError(
            f"a trial of this sweep was planned with {cores} core{'s' * (cores > 1)}, and a slot"
            f" here has {least}; take another machine, or with 'sweep' or 'work' fewer --slots or"
            " --accept-cores (as many threads on fewer cores: slow, and the report says it)"
        )
    return [
        dataclasses.replace(
            slot,
            cores=slot.cores[:cores],
            environment={**slot.environment, **dict.fromkeys(_THREADS, str(cores))},
            planned=cores if len(slot.cores) < cores else 0,
        )
        for slot in slots
    ]


def usable_cores() -> list[int]:
    """Returns the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_gpus() -> list[str]:
    """Returns the ids of the GPUs that jax can use here, each as CUDA_VISIBLE_DEVICES names it; []
    if jax would not use GPUs, or if none can be listed.
    """
    platforms = os.environ.get("JAX_PLATFORMS", "")
    plugins = [entry.name for entry in importlib.metadata.entry_points(group="jax_plugins")]
    if not any("cuda" in name for name in plugins) or (
        platforms and not {"cuda", "gpu"} & set(platforms.split(","))
    ):
        return []
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        return [name for name in names if name.strip() not in ("", "-1")]
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(
            query, stderr=subprocess.DEVNULL, text=True, timeout=20
        ).split()
    return []


def _quota() -> int:
    """Returns how many cores the control group (container) may use at once, rounded up; all of the
    machine's if there is no limit.
    """
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such limit: "max 100000"
        return os.cpu_count() or 1
