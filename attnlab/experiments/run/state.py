"""The states of the trials of a sweep, derived only from their folders, so that launcher, `status`
and report agree.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Plan, Trial
from attnlab.records import attempts
from attnlab.records.locks import is_held
from attnlab.records.stream import Measured, State, read_records

SETTLED = ("done", "failed", "diverged")
"""States in which a trial stays, unless failed ones are asked for again."""

SILENT, SILENT_AT_FIRST, GAPS = 600.0, 1800.0, 5
"""Seconds without a word after which a running trial counts as stalled (ten of the longest
intervals between two words), those before its first step, in which it reads data and compiles, and
how many times its longest silence so far a silence may be: an evaluation that took long once may do
so again.
"""
STOPPED = "stopped by request"
"""How the reason of a trial begins that a person has stopped for good."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """The state of a trial, from its folder.

    Attributes:
      trial: whose.
      state: "running" only while a live process holds the trial's lock.
      step: updates done, by the last record.
      message: the last line of the error, or why it diverged or stopped; "" otherwise.
      attempts: how many processes have begun to work on it.
      seconds: that its ended attempts took together.
      since: when the latest attempt began, seconds since 1970; None before the first.
      heard: time of its last record, seconds since 1970; None before the first attempt.
      gap: the longest time between two records of an attempt, seconds.
      pace: seconds per step of the latest attempt without what came before its first record of a
        step, such as compiling; 0 while that is the only one, None before it.
    """

    trial: Trial
    state: State
    step: int = 0
    message: str = ""
    attempts: int = 0
    seconds: float = 0.0
    since: float | None = None
    heard: float | None = None
    gap: float = 0.0
    pace: float | None = None

    @property
    def total(self) -> int:
        """Updates wanted."""
        return int(self.trial.config["training"]["steps"])

    @property
    def word(self) -> str:
        """Returns the state for display: for an interrupted trial "pruned" (by its search),
        "stopped" (by a person) or "waiting" (for its round) where that is the reason, else `state`.
        """
        reason = self.message.partition(" ")[0]
        is_shown = self.message.startswith(("pruned", "waiting", STOPPED))
        return reason if self.state == "interrupted" and is_shown else self.state

    def age(self, now: float) -> float | None:
        """Returns the seconds since the trial's last record; None without one."""
        return None if self.heard is None else max(0.0, now - self.heard)

    def stalled(self, now: float) -> bool:
        """Returns whether the trial runs and may hang, since its last record is too old: see
        `SILENT`.
        """
        limit = SILENT_AT_FIRST if self.pace is None else max(SILENT, GAPS * self.gap)
        return self.state == "running" and (self.age(now) or 0.0) > limit

    @property
    def lost(self) -> bool:
        """Whether it has no outcome for a reason that is not its settings."""
        return self.word in ("failed", "stopped")

    @property
    def settled(self) -> bool:
        """Whether it needs no more work."""
        return self.word in (*SETTLED, "pruned", "stopped")


def is_left(trial: Trial, directory: Path) -> bool:
    """Returns whether a trial is still to be trained now: it has not settled, and has not reached
    the step (`Candidate.until`) at which its search waits.
    """
    until = trial.candidate.until
    if recorded(trial, directory).settled or until == 0:
        return False
    return until is None or not any(
        record["step"] >= until for record in validations(trial, directory)
    )


def validations(trial: Trial, directory: Path) -> list[dict[str, Any]]:
    """Returns the metric records of a trial's evaluations on the validation split, in order."""
    records = read_records(trial.workdir(directory) / "metrics.jsonl", Measured)
    return [record for record in records if record["split"] == "valid"]


def look(trial: Trial, directory: Path, records: list[dict[str, Any]] | None = None) -> Seen:
    """Returns the present state of a trial as a `Seen`: that of its records (`records`, or those in
    its folder), or "running" if a live process holds its lock and it has not settled.

    Raises:
      UserError: a record in its folder is damaged.
    """
    seen = recorded(trial, directory, records)
    if seen.settled:
        return seen  # the process with the lock is ending, or evaluates it
    if not is_held(trial.workdir(directory)):
        return seen
    return dataclasses.replace(seen, state="running", message="")


def look_at_all(plan: Plan, directory: Path) -> list[Seen]:
    """Returns the states of all trials of a plan, in running order."""
    return [look(trial, directory) for trial in plan.trials()]


def recorded(trial: Trial, directory: Path, records: list[dict[str, Any]] | None = None) -> Seen:
    """Returns the state of a trial as a `Seen` by its attempts' records (`records`, or those in its
    folder), as if no process worked on it; one that ended "done" is "interrupted" while it has no
    `valid.json`.

    A last attempt without an end has died, at whatever moment: "interrupted". One that ended "done"
    is so once its scores are there.
    """
    workdir = trial.workdir(directory)
    records = attempts.read(workdir) if records is None else records
    starts = [record for record in records if record["event"] == "start"]
    state, step, message = attempts.last_word(records)
    if state == "done" and not (workdir / "valid.json").exists():
        state = "interrupted"
    seconds = sum(record.get("seconds") or 0.0 for record in records if record["event"] == "end")
    since = starts[-1]["time"] if starts else None
    return Seen(trial, state, step, message, len(starts), seconds, since, *_pulse(records))


def _pulse(records: Sequence[Mapping[str, Any]]) -> tuple[float | None, float, float | None]:
    """Returns three things from the attempt records of a trial: the time of its last start or step,
    the longest gap within an attempt in seconds, and the seconds per step of its latest attempt
    after its first record of a step; the first and last are None if unknown.
    """
    heard, gap, pace, start, first = None, 0.0, None, None, None
    for record in records:
        if record["event"] == "start":
            heard, pace, start, first = record["time"], None, record, None
        elif record["event"] == "step" and start is not None and heard is not None:
            gap, heard = max(gap, record["time"] - heard), record["time"]
            spent = record.get("seconds", heard - start["time"])
            if record["step"] > start["step"]:
                first = first or (spent, record["step"])
                pace = (spent - first[0]) / max(1, record["step"] - first[1])
    return heard, gap, pace


def counts(seen: Iterable[Seen]) -> dict[str, int]:
    """Counts the trials by the state that is displayed; returns only states that occur, in the
    order in which a trial goes through them.
    """
    states = [status.word for status in seen]
    order = ["done", "running", "waiting", "pending"]
    order += ["interrupted", "pruned", "stopped", "failed", "diverged"]
    return {state: states.count(state) for state in order if state in states}
