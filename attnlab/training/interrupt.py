"""Signals that ask a run to save and leave: SIGTERM (a scheduler's preemption), SIGINT (Ctrl-C) and
SIGHUP (the terminal is gone).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REPEAT = 1.0
"""Seconds in which a second signal is the first one come twice: a scheduler signals every process
of a job, and so does the launcher.
"""


class Interrupt:
    """While entered, the first of the signals is only remembered; a second one, unless it follows
    at once, has its usual effect.

    SIGHUP that is ignored (under nohup) stays ignored.

    Attributes:
      signal: number of the signal that came, None before.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._when = 0.0
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Interrupt:
        wanted = [
            number
            for number in _SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        self._before = {number: signal.signal(number, self._remember) for number in wanted}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal, self._when = number, time.monotonic()
        elif time.monotonic() - self._when >= REPEAT:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
