"""How far the trials of a sweep are: derived from their folders alone, so that launcher, `status` and report say the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.running import attempts
from attnlab.training.records import State, Status, is_held

SETTLED = ("done", "failed", "diverged")
"""States in which a trial stays, unless failed ones are asked for again."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a trial's folder says.

    Attributes:
      trial: whose.
      state: "running" only while a live process holds the trial's lock.
      step: updates done, as last heard.
      message: the last line of the error, or why it diverged or stopped; "" otherwise.
      attempts: how many processes have begun to work on it.
      seconds: that its ended attempts took together.
      since: when the latest attempt began, seconds since 1970; None before the first.
    """

    trial: Trial
    state: State
    step: int = 0
    message: str = ""
    attempts: int = 0
    seconds: float = 0.0
    since: float | None = None

    @property
    def total(self) -> int:
        """Updates wanted."""
        return int(self.trial.config["training"]["steps"])

    @property
    def word(self) -> str:
        """The state as people are told it: "pruned" is what a search has stopped for good."""
        return "pruned" if self.state == "interrupted" and self.message.startswith("pruned") else self.state

    @property
    def settled(self) -> bool:
        """Whether nothing more is to be done for it."""
        return self.word in (*SETTLED, "pruned")


def look(trial: Trial, directory: Path) -> Seen:
    """The state of a trial.

    Raises:
      UserError: a record in its folder is damaged.
    """
    seen = recorded(trial, directory)
    if seen.settled:
        return seen  # whoever holds it is on the way out, or evaluates it
    return dataclasses.replace(seen, state="running", message="") if is_held(trial.workdir(directory)) else seen


def look_at_all(plan: Plan, directory: Path) -> list[Seen]:
    """The states of all trials, in running order."""
    return [look(trial, directory) for trial in plan.trials()]


def recorded(trial: Trial, directory: Path) -> Seen:
    """The state of a trial that no process works on, or only this one: what its last attempt left.

    A last attempt without an end has died, at whatever moment: "interrupted". One that ended "done" is so once its scores are there.
    """
    workdir = trial.workdir(directory)
    records, status = attempts.read(workdir), Status.read(workdir) or {}
    starts = [record for record in records if record["event"] == "start"]
    if not records:
        return Seen(trial, "pending")
    state, step, message = _last_word(records, int(status.get("step", 0)))
    if state == "done" and not (workdir / "valid.json").exists():
        state = "interrupted"
    seconds = sum(record.get("seconds") or 0.0 for record in records)
    return Seen(trial, state, step, message, len(starts), seconds, starts[-1]["time"] if starts else None)


def _last_word(records: Sequence[Mapping[str, Any]], heard: int) -> tuple[State, int, str]:
    """State, step and message by the records of a trial's attempts; `heard` is the last step that a live one told of."""
    state: State = "interrupted"
    step, message, stopped = heard, "", ""
    for record in records:
        if record["event"] == "end":
            state, step, message = record["state"], int(record["step"]), record["message"]
        elif record["event"] == "stop":
            stopped = record["message"]
        else:  # a new attempt, or leave for one
            state, step, message = "interrupted", heard, ""
    return (state, step, stopped) if stopped and state == "interrupted" else (state, step, message)


def counts(seen: Iterable[Seen]) -> dict[str, int]:
    """State, as people are told it, to number of trials, only those that occur, in the order in which a trial goes through them."""
    states = [one.word for one in seen]
    order = ("done", "running", "pending", "interrupted", "pruned", "failed", "diverged")
    return {state: states.count(state) for state in order if state in states}
