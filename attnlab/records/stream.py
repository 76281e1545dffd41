"""The metric stream of a run directory, which others read and a resumed run continues bit for bit, and
TensorBoard event files of the same numbers.

Needs neither jax nor numpy: the launcher and the report read these files too. Event files are
written record by record in the calling thread: tensorboardX's own `SummaryWriter` queues to a
thread that dies on a full disk and then blocks the run for ever; here only its protocol buffers and
checksums are used.
"""

import hashlib
import json
import math
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from attnlab.errors import UserError
from attnlab.records.files import AppendOnly, drop_torn_line, write_atomic
from attnlab.records.json_kinds import Damaged, Natural, fit, parsed


class Events:
    """Scalars as TensorBoard events: a new file per process, opened by the first scalar.

    Args:
      folder: where the event files go; made if absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._purge: int | None = None
        self._file: AppendOnly | None = None

    def forget_from(self, step: int) -> None:
        """Sets, before the first scalar, the step from which on TensorBoard shall hide what older
        files contain.
        """
        self._purge = step

    def write(self, step: int, group: str, values: Mapping[str, Any]) -> None:
        """Writes the numbers among `values` as scalars `group/name` of `step`; other values are
        left out.

        Raises:
          UserError: the disk is full.
        """
        numbers = {
            f"{group}/{name}": float(value)
            for name, value in values.items()
            if isinstance(value, int | float)
        }
        if numbers:
            self._append(step=step, summary=scalars(numbers))

    def close(self) -> None:
        """Closes the file; the next scalar starts another."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, **fields: Any) -> None:
        """Appends an event with these fields (say `step` and `summary`), and the time now, to the
        event file; creates the file first, with its version and, after `forget_from`, the step from
        which older files are hidden, if it is not open.
        """
        from tensorboardX.proto.event_pb2 import SessionLog

        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
            self._file = AppendOnly(self.folder / name)
            self._append(file_version="brain.Event:2")
            if self._purge is not None:
                self._append(step=self._purge, session_log=SessionLog(status=SessionLog.START))
        self._file.append(encoded(time.time(), **fields))


def scalars(numbers: Mapping[str, float]) -> Any:
    """Returns a TensorBoard summary with these numbers, by tag."""
    from tensorboardX.proto.summary_pb2 import Summary  # 0.4 s

    return Summary(
        value=[Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
    )


def encoded(wall_time: float, **fields: Any) -> bytes:
    """Returns one event with these fields (`step`, `summary`, `file_version`) as bytes of an event
    file.
    """
    from tensorboardX.proto.event_pb2 import Event

    return frame(Event(wall_time=wall_time, **fields).SerializeToString())


def frame(data: bytes) -> bytes:
    """Returns `data` as one TFRecord: length, its masked crc32c, data, the data's masked crc32c;
    little-endian.
    """
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    checks = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
    return length + checks[0] + data + checks[1]


State = Literal["pending", "running", "done", "failed", "diverged", "interrupted"]


class Record(TypedDict):
    """What every line of a stream has."""

    step: Natural


class Measured(Record):
    """A line of `metrics.jsonl`; beside it the values that were measured, by name."""

    split: str


class Scored(Measured):
    """One that a training loop has written."""

    loss: float


BEFORE = "before.jsonl"
"""The records of the runs before one that goes on with data of its own, in its folder."""


class Metrics:
    """The metric stream: `metrics.jsonl`, `timing.jsonl` and TensorBoard events under
    `<workdir>/tensorboard`.

    `metrics.jsonl` holds only what is determined by config and seed, one JSON object a line, keys
    in the order given, floats as `repr` writes them (they read back bit for bit; NaN and Infinity
    as Python's json spells them). After a kill and `rewind` it becomes, byte for byte, the file of
    an uninterrupted run, provided everything of step k is written (and `sync`ed) before checkpoint
    k is saved. Wall-clock quantities go to `timing.jsonl`, which is only ever appended to.

    Args:
      workdir: an existing directory.
      tensorboard: also write events; they never hold more than `metrics.jsonl` and `timing.jsonl`
        do.
    """

    def __init__(self, workdir: str | Path, *, tensorboard: bool = True) -> None:
        """Prepares the files `metrics.jsonl`, `timing.jsonl` and, if `tensorboard`, those of
        TensorBoard in `workdir`; each is opened, or made, by its first record.
        """
        self.path = Path(workdir) / "metrics.jsonl"
        self._metrics = AppendOnly(self.path)
        self._timing = AppendOnly(self.path.with_name("timing.jsonl"))
        self._events = Events(self.path.parent / "tensorboard") if tensorboard else None
        self._size, self._digest = 0, hashlib.sha256()

    @property
    def extent(self) -> dict[str, Any]:
        """Returns the length and digest of `metrics.jsonl` as it is now, {"bytes": int, "sha256":
        hex}, for a checkpoint to store; reads nothing.
        """
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}

    def rewind(self, step: int | None, extent: Mapping[str, Any] | None = None) -> None:
        """Removes from `metrics.jsonl`, before a resumed run writes, all records after `step` (all
        records if None) and an incomplete last line; raises UserError for a line that is no record,
        or if the remainder has another size or SHA-256 than `extent` (None: not compared). It is
        one atomic replacement.

        `None` (nothing was restored) drops everything. TensorBoard is told to forget the same
        steps.

        Args:
          step: of the checkpoint that the run goes on from.
          extent: what that checkpoint remembers of the stream; None for one of an older version,
            and nothing is compared.

        Raises:
          UserError: a whole line is no record (file and line number), or what would be kept is not
            what was written up to `step`; the file stays as it is.
        """
        self._metrics.close()
        last = -1 if step is None else step
        old = self.path.read_bytes() if self.path.exists() else None
        content = lines_until(self.path, last)
        digest = hashlib.sha256(content)
        if extent is not None and {"bytes": len(content), "sha256": digest.hexdigest()} != extent:
            problem = f"holds {len(content)} bytes up to step {last}"
            if old is None:
                problem = "is gone"
            elif len(content) == extent["bytes"]:
                problem = f"holds other bytes up to step {last}"
            raise UserError(
                f"{self.path} {problem}, but the checkpoint of that step was saved with"
                f" {extent['bytes']}: the records were changed by hand or damaged; put back a good"
                " copy of the file, or train anew in another --workdir, which gives the same records"
            )
        drop_torn_line(self._timing.path)
        if self._events is not None:
            self._events.forget_from(last + 1)
        if old is not None and content != old:
            write_atomic(self.path, content)
        self._size, self._digest = len(content), digest

    def write(self, step: int, split: str, values: Mapping[str, float | int | str]) -> None:
        """Appends `{"step": step, "split": split, **values}` to `metrics.jsonl`, and the numbers to
        TensorBoard as `split/name`.

        Args:
          step: updates done.
          split: "train", "valid", ...
          values: deterministic quantities; numpy scalars become Python's without a change of value.

        Raises:
          UserError: the disk is full.
        """
        record = self._append(self._metrics, {"step": step, "split": split}, split, values)
        self._size += len(record)
        self._digest.update(record)

    def time(self, step: int, values: Mapping[str, float]) -> None:
        """Appends wall-clock quantities (`step_seconds`, `tokens_per_second`, `compile_seconds`,
        `training.programs.COUNTED`) to `timing.jsonl`.

        Where several trials moved in one step of a program, `together` says how many:
        `step_seconds` is the step's time divided by it.
        """
        self._append(self._timing, {"step": step, "time": round(time.time(), 3)}, "timing", values)

    def sync(self) -> None:
        """Force everything written so far onto the disk; call it before a checkpoint is saved."""
        for file in (self._metrics, self._timing):
            file.sync()

    def close(self) -> None:
        """Forces everything onto the disk (`sync`) and closes all files, also if that fails. Safe
        to call twice.
        """
        try:
            self.sync()
        finally:
            for file in (self._metrics, self._timing, self._events):
                if file is not None:
                    file.close()

    def _append(
        self, file: AppendOnly, head: Mapping[str, Any], group: str, values: Mapping[str, Any]
    ) -> bytes:
        """Appends a record of the fields `head` (with "step") and `values` to `file` as one JSON
        line, writes the numbers of `values` as TensorBoard scalars `group/name` too if TensorBoard
        is on, and returns the line.
        """
        # `item` makes a Python number of a numpy or jax scalar without changing its value.
        plain = {
            name: value.item() if hasattr(value, "item") else value
            for name, value in values.items()
        }
        line = (json.dumps({**head, **plain}, ensure_ascii=False) + "\n").encode()
        file.append(line)
        if self._events is not None:
            self._events.write(int(head["step"]), group, plain)
        return line


def read_records(path: str | Path, kind: Any = Record) -> list[dict[str, Any]]:
    """Reads the records of a `metrics.jsonl` or `timing.jsonl`, in order; an incomplete last line
    is left out, [] without the file, UserError for a damaged line.

    Args:
      path: of the file.
      kind: what a record has at least, a `TypedDict`: `Measured` for metrics.

    Raises:
      UserError: a whole line is no record of that kind (file and line number).
    """
    return [record for _, record in _records(Path(path), kind)]


def lines_until(path: Path, last: int) -> bytes:
    """Returns the lines of a stream up to a step, b"" without the file; raises `UserError` where a
    whole line is no record.
    """
    return b"".join(line for line, record in _records(path) if record["step"] <= last)


def rank_key(scores: Mapping[str, Any], by: str, way: str) -> tuple[float, float]:
    """Returns the key that orders validations, least for the best: the score `by` (`way`: "min" or
    "max", which is better), of equal ones the loss.
    """
    return (scores[by] if way == "min" else -scores[by], scores["loss"])


def best_record(records: Sequence[dict[str, Any]], by: str, way: str) -> dict[str, Any]:
    """Returns the validation record with the best score `by` (`way`: "min" or "max"), at equal
    scores that with the least loss, and the last validation record if no score is a number.
    """
    validations = [record for record in records if record["split"] == "valid"]
    best, least = validations[-1], (math.inf, math.inf)
    for record in validations:
        if (reached := rank_key(record, by, way)) < least:
            best, least = record, reached
    return best


def _records(path: Path, kind: Any = Record) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields each complete line of the file `path`, if there is one, with its record, a dictionary of
    the form `kind`; leaves out an incomplete last line, and raises UserError, with `path` and line
    number, for a line that is no record.
    """
    content = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            yield line, fit(parsed(line), kind)
        except Damaged as error:
            raise UserError(
                f"{path}, line {number} is no record ({error}): put back a good copy, or remove"
                " that line"
            ) from error
