"""What a process brings to a run that it trains, the signals that ask it to save and leave, and how
training ended; imports no jax.
"""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from attnlab.progress import Progress
from attnlab.records.attempts import Attempt
from attnlab.records.stream import State

OnStep = Callable[[int, Mapping[str, float]], object]
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A scheduler's preemption, Ctrl-C, and that the terminal is gone."""
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

    def __enter__(self) -> "Interrupt":
        """Replaces the handlers of the signals by `_remember`, except of a SIGHUP that is ignored,
        stores the former ones and returns itself; in another thread than the main one it replaces
        none.
        """
        if threading.current_thread() is not threading.main_thread():
            return self
        numbers = [
            number
            for number in _SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
        ]
        self._before = {number: signal.signal(number, self._remember) for number in numbers}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        """Stores the first signal and its time; restores the handlers and raises a later signal
        again if `REPEAT` seconds have passed since.
        """
        if self.signal is None:
            self.signal, self._when = number, time.monotonic()
        elif time.monotonic() - self._when >= REPEAT:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@dataclasses.dataclass(frozen=True)
class Session:
    """This process's work on a run, or on several at once.

    Attributes:
      progress: entered; where a person looks.
      interrupt: entered; a remembered signal makes the loop save and leave.
      began: `time.perf_counter()` at the start of the command, for the time to the first step.
      until: save and leave after this step, as after a signal; at once if the run is there already.
        0: save the state before the first step. None: train to the end.
      attempts: one for each run; they get the steps, and the caller records their ends.
      on_step: gets each step and its numbers after they are recorded; those of an evaluation in a
        call of their own, as "valid/loss". It does not raise; to leave it sets `interrupt.signal`.
    """

    progress: Progress
    interrupt: Interrupt
    began: float
    until: int | None = None
    attempts: tuple[Attempt, ...] = ()
    on_step: OnStep = lambda step, values: None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: the final state, the step, the seconds to the first step, a text on why it
    ended, and the signal that did it.
    """

    state: State
    step: int
    seconds_to_first_step: float | None = None
    message: str = ""
    signal: int | None = None
