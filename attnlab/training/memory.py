"""Memory that is freed stays with the process, so that a training step finds it where it was.

XLA's CPU backend takes the arrays of a step as one block and frees it after the step. The C library
of Linux gives a block of more than 32 MiB back to the system at once and smaller ones soon after;
in the next step the system clears every page again before it is written. Measured on two cores that
was a third of the processor time of a step of a small Transformer (docs/results/speed.md).
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of malloc.h


def keep_freed() -> bool:
    """Tell the C library to keep what is freed, for the rest of this process; before jax starts its
    threads, since each thread may have a heap of its own.

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
