"""How often the kernel has killed a process for lack of memory, as far as Linux tells."""

import contextlib
from pathlib import Path

COUNTERS = (
    Path("/sys/fs/cgroup/memory.events"),  # of this container, cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # v1
    Path("/proc/vmstat"),  # of the whole machine
)


def kills() -> int | None:
    """Returns the sum of all 'oom_kill' counters of the kernel that can be read, of this container
    and of the machine, or None if none can be read; it grows with every kill for lack of memory,
    maybe by more than one.
    """
    counts = []
    for path in COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            counts += [
                int(line.split()[1])
                for line in path.read_text().splitlines()
                if line.startswith("oom_kill ")
            ]
    return sum(counts) if counts else None
