"""Slots: shares of this machine that trials run in, one at a time each; no two slots share a core or, where there are enough, a GPU.

A slot binds its process before jax starts: to its cores (whose number is also that of XLA's threads) and, with GPUs, to one of
them through CUDA_VISIBLE_DEVICES. What there is is found without jax.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.errors import UserError

_MEMORY = 0.9  # of a GPU, for all trials that share it
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclasses.dataclass(frozen=True)
class Slot:
    """A share of a machine.

    Attributes:
      number: from 0.
      cores: that its process may use; () for any.
      environment: set for its process, before jax is imported.
    """

    number: int
    cores: tuple[int, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def enter(self) -> None:
        """Bind this process to the slot; called before jax starts a backend."""
        os.environ.update(self.environment)
        if self.cores and hasattr(os, "sched_setaffinity"):
            for thread in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["0"]:
                os.sched_setaffinity(int(thread), self.cores)


def local_slots(wanted: int | None = None) -> list[Slot]:
    """The slots of this machine: one a GPU where jax can use them, else one a core; or as many as wanted.

    Raises:
      UserError: fewer than one is wanted.
    """
    if wanted is not None and wanted < 1:
        raise UserError(f"--slots={wanted}: expected a whole number of at least 1")
    cores, gpus = usable_cores(), usable_gpus()
    if gpus:
        return share(wanted or len(gpus), cores, gpus)
    return share(wanted or min(len(cores), _quota()), cores, ())


def share(count: int, cores: Sequence[int], gpus: Sequence[str]) -> list[Slot]:
    """`count` slots: cores in blocks as equal as can be (shared only where there are fewer than slots), GPUs in turn."""
    slots = []
    for number in range(count):
        block = tuple(cores[number * len(cores) // count : (number + 1) * len(cores) // count])
        environment = {"OMP_NUM_THREADS": str(max(1, len(block)))}
        if gpus:
            environment |= {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]}
            if count > len(gpus):
                environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_MEMORY / math.ceil(count / len(gpus)):.3f}"
        slots.append(Slot(number, block or (cores[number * len(cores) // count],), environment))
    return slots


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def usable_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may hold, one a GPU; empty where jax would not use them."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    plugins = [entry.name for entry in importlib.metadata.entry_points(group="jax_plugins")]
    if not any("cuda" in name for name in plugins) or (platforms and not {"cuda", "gpu"} & set(platforms.split(","))):
        return []
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip() not in ("", "-1")]
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.split()


def _quota() -> int:
    """How many cores a container may use at once, however many it sees."""
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such limit: "max 100000"
        return os.cpu_count() or 1
