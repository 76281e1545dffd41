"""A command of several processes without jax: `python -m tests.processes.stub WORK [flags]`; what
it does is a function of this file.
"""

import os
import signal
import sys
import time
from collections.abc import Callable

from attnlab import processes
from attnlab.commands import Command, main
from attnlab.errors import UserError


def waits() -> int:
    """For ever, as in a collective whose other processes do not come."""
    print("at work", flush=True)
    time.sleep(600)
    return 0


def adds() -> int:
    """Both speak, and only the first ends of itself."""
    print(f"sum of process {processes.index()}", flush=True)
    print("a note", file=sys.stderr)
    os.write(1, b"from below Python\n")
    return 0


def diverges() -> int:
    return 1


def refuses() -> int:
    """The same mistake in all, some time apart."""
    time.sleep(0.3 * (1 - processes.index()))
    raise UserError("config.seed=-1: expected more")


def refuses_there() -> int:
    """A mistake that one finds."""
    if processes.index() == 1:
        raise UserError("no such file")
    return waits()


def fails_there() -> int:
    """One fails, and the other as a consequence at once."""
    if processes.index() == 1:
        raise ValueError("a bug")
    return waits()


def is_cut_off() -> int:
    """The first fails because the other was killed, which is heard of later."""
    if processes.index() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("connection closed by peer")


def aborts() -> int:
    """A library ends one."""
    if processes.index() == 0:
        return waits()
    os.write(2, b"F0000 the library's reason\n")
    os.abort()


def saves() -> int:
    """Asked to leave, the first one says that it has saved."""
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    print("at work", flush=True)
    while not calls:
        time.sleep(0.02)
    print("saved", flush=True)
    return 143


def full() -> int:
    """What `main` has its own words for."""
    raise OSError(28, "No space left on device", "somewhere")


def run(name: str) -> int:
    work: Callable[[], int] = globals()[name]
    processes._join = lambda *_: None  # type: ignore[assignment]
    import attnlab.commands as commands

    commands._run = lambda *_: work()  # type: ignore[assignment]
    return main(["work", *sys.argv[2:]], {"work": Command("none", "", several=True)})


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
