"""The devices of a run: in its manifest, in the line that begins training, and those that it leaves
unused; and the memory of its process. Importing this module loads no jax.
"""

import ctypes
import os
import platform
from glob import glob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlab.training.parallel import Backend

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of malloc.h


def describe(devices: "Backend", precision: str) -> dict[str, object]:
    """Returns a dict on the devices of a run for its manifest: "kind", "count", "processes",
    entries of the backend, and "precision", or on a CPU "cores", the number that decides how sums
    round.
    """
    import jax

    first = jax.devices()[0]
    on_cpu = first.platform == "cpu"
    return {
        "kind": first.device_kind,
        "count": devices.count,
        "processes": jax.process_count(),
        **devices.about,
        **({"cores": _cores()} if on_cpu else {"precision": precision}),
    }


def line(devices: "Backend", precision: str) -> str:
    """Returns the devices as one line of text, "devices: 8 x NVIDIA H100, mesh, data 2, fsdp 4,
    precision float32"; numbers that are 1 are left out.
    """
    fields = describe(devices, precision)
    parts = [f"devices: {fields.pop('count')} x {fields.pop('kind')}"]
    parts.append("pmap" if devices.layout is None else "mesh")
    axes = {} if devices.layout is None else devices.layout.mesh.shape
    return ", ".join(parts + [f"{name} {x}" for name, x in {**axes, **fields}.items() if x != 1])


def unused() -> str | None:
    """Returns a warning if this machine has an accelerator but JAX runs on the CPU without having
    been told to; else None.
    """
    import jax

    files = [*glob("/dev/accel[0-9]*"), *glob("/dev/vfio/[0-9]*")]  # of TPUs
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1"):
        files += glob("/dev/nvidia[0-9]*")
    if not files or jax.config.jax_platforms or jax.devices()[0].platform != "cpu":  # type: ignore[attr-defined]
        return None
    return (
        f"{files[0]} is there, but JAX computes on the CPU: pip install 'attnlab[cuda]' or"
        " 'attnlab[tpu]', or set JAX_PLATFORMS=cpu if that is meant"
    )


def use_precision(precision: str) -> None:
    """Compute products of float32 arrays so, in whatever this process traces from now on
    (`training.precision`).
    """
    import jax

    jax.config.update("jax_default_matmul_precision", precision)


def _cores() -> int:
    """Returns the number of CPU cores that XLA divides its work by (`$NPROC`, else those this
    process may use, else those of the machine), which decides how sums round.
    """
    setting = os.environ.get("NPROC", "")
    if setting.isdecimal() and int(setting):
        return int(setting)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_freed() -> bool:
    """Makes the C library keep freed memory for the rest of this process and returns whether it
    does; changes nothing with another library than glibc, or where variables MALLOC_... or
    GLIBC_TUNABLES are set. To be called before jax starts its threads, since each may have a heap
    of its own. A training step then finds its memory where it was.

    XLA's CPU backend takes the arrays of a step as one block and frees it after the step. The C
    library of Linux gives a block of more than 32 MiB back to the system at once and smaller ones
    soon after; in the next step the system clears every page again before it is written. Measured
    on two cores that was a third of the processor time of a step of a small Transformer
    (docs/results/speed.md).

    The process then holds the most memory that it ever used. Whoever sets MALLOC_... variables or
    GLIBC_TUNABLES chose otherwise: nothing is changed then, nor with another C library.

    Returns:
      Whether it is kept.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # no block by itself, no end of the heap given back, one heap for all threads: a further heap
    # ends at 64 MiB
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, -1), mallopt(_ARENA_MAX, 1)])
