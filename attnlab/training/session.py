"""What a process brings to a run that it trains, and how that ended; imports no jax."""

from __future__ import annotations

import dataclasses

from attnlab.progress import Progress
from attnlab.records.attempts import Attempt
from attnlab.records.stream import State
from attnlab.training.interrupt import Interrupt


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
    """

    progress: Progress
    interrupt: Interrupt
    began: float
    until: int | None = None
    attempts: tuple[Attempt, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: the final state, the step, the seconds to the first step and a text on
    why it ended.
    """

    state: State
    step: int
    seconds_to_first_step: float | None = None
    message: str = ""
