"""TensorBoard event files, written record by record in the calling thread.

tensorboardX's own `SummaryWriter` queues to a thread that dies on a full disk and then blocks the
run for ever; here only its protocol buffers and checksums are used.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.records.files import AppendOnly


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
