"""`events.jsonl`: what has happened to a run.

It has a record when a process begins to work on the run, one in a while of how far it is, and one
at its end. A start without an end: that process died. A failed trial of a sweep that shall run
again has a record "retry" in between; one that was stopped for good, "stop" with the reason.
Records are only ever added. Needs neither jax nor numpy.
"""

import contextlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NotRequired

from attnlab.records.files import AppendOnly, drop_torn_line
from attnlab.records.json_kinds import Finite, Natural
from attnlab.records.provenance import saved_step
from attnlab.records.stream import Record, State, read_records

FILE = "events.jsonl"
BEFORE = "attempts.jsonl"
"""What the file was called in sweeps of earlier versions; it is renamed by the first record that is added."""
INTERVAL = 5.0
"""Seconds between two records "step", in the first minutes."""
# later the interval is this share of the time since the start, and at most so many seconds
_SHARE, _LONGEST = 0.005, 60.0


class _Start(Record):
    """What is read of a record, of each kind."""

    event: Literal["start"]
    time: Finite
    together: NotRequired[Natural]


class _Step(Record):
    event: Literal["step"]
    time: Finite
    seconds: NotRequired[Finite]


class _End(Record):
    event: Literal["end"]
    state: State
    message: str
    seconds: NotRequired[Finite | None]
    peak_bytes: NotRequired[Natural | None]
    first_step_seconds: NotRequired[Finite | None]


class _Stop(Record):
    event: Literal["stop"]
    message: str


class _Retry(Record):
    event: Literal["retry"]


class Attempt:
    """One process at work on a run, whose lock it holds.

    Args:
      workdir: of the run.
      use: what the process may use, for the record of its start.

    Attributes:
      workdir: of the run.
      began: seconds since 1970; None until `begin`.
      step: updates done, as last told.
    """

    def __init__(self, workdir: Path, use: Mapping[str, Any] | None = None) -> None:
        """Stores the folder of the run and `use`, further fields of the record "start"; writes
        nothing before `begin`.
        """
        self.workdir, self._use = workdir, dict(use or {})
        self.began: float | None = None
        self.step = 0
        self._clock = self._reported = 0.0

    @classmethod
    def start(cls, workdir: Path, use: Mapping[str, Any] | None = None) -> "Attempt":
        """Returns a new attempt and writes its record "start" at once."""
        attempt = cls(workdir, use)
        attempt.begin()
        return attempt

    def begin(self) -> None:
        """Appends the record "start", with this process's id, its host, the fields given as `use`,
        and the newest saved step (0 without any), to the run's `events.jsonl` and starts the clock;
        does nothing if that is done already.
        """
        if self.began is not None:
            return
        step = saved_step(self.workdir) or 0
        self.began, self._clock = time.time(), time.monotonic()
        self._reported = self._clock
        who = {"pid": os.getpid(), "host": socket.gethostname()}
        _append(self.workdir, "start", {**who, **self._use, "step": step}, self.began)

    def at(self, step: int) -> None:
        """Sets the number of updates done to `step` and appends a record "step" with it to the
        run's `events.jsonl` if the last record is old enough; calls `begin` first. May be called at
        every step.

        Raises:
          UserError: the disk is full.
        """
        self.begin()
        self.step = step
        now = time.monotonic()
        if now - self._reported >= min(_LONGEST, max(INTERVAL, _SHARE * (now - self._clock))):
            self._reported = now
            seconds = round(now - self._clock, 3)
            _append(self.workdir, "step", {"seconds": seconds, "step": step}, lasting=False)

    def end(
        self, state: State, step: int, message: str = "", first_step_seconds: float | None = None
    ) -> None:
        """Appends the record "end", with these arguments, the seconds since `begin` and the peak
        memory, to the run's `events.jsonl`; does nothing if no "start" was written.
        """
        if self.began is None:
            return
        seconds = round(time.monotonic() - self._clock, 3)
        used = (seconds, peak_bytes(), first_step_seconds)
        _append(self.workdir, "end", _end(state, step, message, used))


def give_up(workdir: Path, message: str) -> None:
    """Appends the record "end" with the state "failed" and this message to a run's `events.jsonl`,
    for a launcher whose processes died without writing it. It must be called while none of them
    lives.
    """
    _append(workdir, "end", _end("failed", _last_step(workdir), message))


def reopen(workdir: Path) -> None:
    """Let a trial that failed run again, from what it has saved; nothing that is recorded goes."""
    _append(workdir, "retry", {"step": _last_step(workdir)})


def stop(workdir: Path, message: str) -> None:
    """Write down that a running trial is stopped for good and why, before it is sent the signal."""
    _append(workdir, "stop", {"step": _last_step(workdir), "message": message})


def read(workdir: Path) -> list[dict[str, Any]]:
    """Reads all records of a run's `events.jsonl` (or of the file of earlier versions), in order.

    Raises:
      UserError: the file is damaged.
    """
    file = workdir / FILE
    return read_records(
        file if file.exists() else workdir / BEFORE, _Start | _Step | _End | _Stop | _Retry
    )


def spent(records: Sequence[Mapping[str, Any]]) -> float:
    """Returns the seconds that processes have worked on a run since its last record "retry" (an
    equal share where several runs were one program), summed over its attempts from its event
    records; an attempt without an end counts up to its last record.

    Where several runs were one program, each has an equal share of its time.
    """
    total, current, share = 0.0, 0.0, 1
    for record in records:
        if record["event"] == "retry":
            total = current = 0.0
        elif record["event"] == "start":
            total, current, share = total + current, 0.0, max(1, record.get("together", 1))
        else:
            current = max(current, (record.get("seconds") or 0.0) / share)
    return total + current


def last_word(records: Sequence[Mapping[str, Any]]) -> tuple[State, int, str]:
    """Returns state, last step and message of a run on which no process works, from its event
    records: those of its last "end", but "pending" without any record, and "interrupted" if its
    last attempt has no "end", with the message of a "stop" if it had one.

    A last attempt without an end has died, at whatever moment: "interrupted", at the last step that
    it told of.
    """
    state: State = "interrupted" if records else "pending"
    step, message, stopped = 0, "", ""
    for record in records:
        step = int(record["step"])
        if record["event"] == "end":
            state, message = record["state"], record["message"]
        elif record["event"] == "stop":
            stopped = record["message"]
        # a new attempt, how far it is, or leave for one, which takes back that it was stopped
        else:
            state, message = "interrupted", ""
            stopped = "" if record["event"] == "retry" else stopped
    return (state, step, stopped) if stopped and state == "interrupted" else (state, step, message)


def peak_bytes() -> int:
    """Returns the largest resident set of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _last_step(workdir: Path) -> int:
    """Returns the step of the newest record of a run; 0 without any."""
    records = read(workdir)
    return int(records[-1]["step"]) if records else 0


def _end(
    state: State, step: int, message: str, used: Sequence[float | None] = (None, None, None)
) -> dict[str, Any]:
    """Returns the fields of a record "end"; `used` are seconds, bytes, and seconds to the first
    step.
    """
    names = ("seconds", "peak_bytes", "first_step_seconds")
    costs = dict(zip(names, used, strict=True))
    return {"state": state, "step": step, **costs, "message": message}


def _append(
    workdir: Path,
    event: str,
    fields: Mapping[str, Any],
    now: float | None = None,
    lasting: bool = True,
) -> None:
    """Appends a record of the kind `event`, with `fields` and the time `now` (seconds since 1970), to
    `events.jsonl` (renaming the file of earlier versions first); forces it onto the disk if `lasting`.
    """
    when = round(time.time() if now is None else now, 3)
    record = {"event": event, "time": when, **fields}
    if not (workdir / FILE).exists():
        with contextlib.suppress(FileNotFoundError):
            os.replace(workdir / BEFORE, workdir / FILE)
    drop_torn_line(workdir / FILE)
    with closing(AppendOnly(workdir / FILE)) as file:
        file.append((json.dumps(record, ensure_ascii=False) + "\n").encode())
        if lasting:
            file.sync()
