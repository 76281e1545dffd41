"""`attempts.jsonl`: a record when a process begins to work on a trial, and one when it ends. A start without an end: it died.

A failed trial that shall run again has a record "retry" in between; one that was stopped for good, "stop" with the reason.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NotRequired

from attnlab.experiments.running.slots import Slot
from attnlab.files import AppendOnly, drop_torn_line
from attnlab.json_kinds import Finite, Natural
from attnlab.training.records import Record, State, read_records

FILE = "attempts.jsonl"


class _Start(Record):
    """What is read of a record, of each kind."""

    event: Literal["start"]
    time: Finite


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


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One process at work on a trial; it holds the trial's lock.

    Attributes:
      workdir: the trial's.
      began: seconds since 1970.
    """

    workdir: Path
    began: float

    @classmethod
    def start(cls, workdir: Path, slot: Slot | None) -> Attempt:
        """Record that this process begins, with the newest saved step that it finds and what it may use."""
        now = time.time()
        use = {} if slot is None else {"slot": slot.number, "cores": list(slot.cores), "devices": dict(slot.environment)}
        step = max((int(path.name) for path in (workdir / "checkpoints").glob("*") if path.name.isdigit()), default=0)
        who = {"pid": os.getpid(), "host": socket.gethostname()}
        _append(workdir, {"event": "start", "time": round(now, 3), **who, **use, "step": step})
        return cls(workdir, now)

    def end(self, state: State, step: int, message: str = "", first_step_seconds: float | None = None) -> None:
        """Record how it ended, its seconds and the most memory it held."""
        now = time.time()
        used = {"seconds": round(now - self.began, 3), "peak_bytes": peak_bytes(), "first_step_seconds": first_step_seconds}
        _append(self.workdir, {"event": "end", "time": round(now, 3), "state": state, "step": step, **used, "message": message})


def give_up(workdir: Path, message: str) -> None:
    """The launcher's word on a trial whose processes die without one: "failed". It must be called while none of them lives."""
    records = read(workdir)
    step = records[-1]["step"] if records else 0
    end = {"event": "end", "time": round(time.time(), 3), "state": "failed", "step": step, "seconds": None, "peak_bytes": None}
    _append(workdir, {**end, "first_step_seconds": None, "message": message})


def reopen(workdir: Path) -> None:
    """Let a trial that failed run again, from what it has saved; nothing that is recorded goes."""
    last = read(workdir)[-1]
    _append(workdir, {"event": "retry", "time": round(time.time(), 3), "step": last["step"]})


def stop(workdir: Path, message: str) -> None:
    """Write down that a running trial is stopped for good and why, before it is sent the signal."""
    last = read(workdir)[-1]
    _append(workdir, {"event": "stop", "time": round(time.time(), 3), "step": last["step"], "message": message})


def read(workdir: Path) -> list[dict[str, Any]]:
    """All records of a trial, in order.

    Raises:
      UserError: the file is damaged.
    """
    return read_records(workdir / FILE, _Start | _End | _Stop | _Retry)


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _append(workdir: Path, record: Mapping[str, Any]) -> None:
    drop_torn_line(workdir / FILE)
    with closing(AppendOnly(workdir / FILE)) as file:
        file.append((json.dumps(record, ensure_ascii=False) + "\n").encode())
        file.sync()
