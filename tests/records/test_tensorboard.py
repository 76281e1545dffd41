"""TensorBoard event files, read back with TensorBoard's framing and protocol buffers."""

import math
import struct
from pathlib import Path
from typing import Any

import pytest

from attnlab.records.tensorboard import Events

pytest.importorskip("tensorboardX")


def read_events(folder: Path) -> list[Any]:
    """All events of the folder's only file, both checksums of each record verified."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    (file,) = folder.iterdir()
    content, events = file.read_bytes(), []
    while content:
        (length,), (check,) = struct.unpack("<Q", content[:8]), struct.unpack("<I", content[8:12])
        data = content[12 : 12 + length]
        (data_check,) = struct.unpack("<I", content[12 + length : 16 + length])
        assert check == masked_crc32c(content[:8]) and data_check == masked_crc32c(data)
        assert len(data) == length
        events.append(Event.FromString(data))
        content = content[16 + length :]
    return events


def test_scalars_are_in_the_file_at_once(tmp_path: Path) -> None:
    """Numbers become `group/name`, other values are left out, nothing waits for `close`."""
    events = Events(tmp_path / "tensorboard")
    events.write(1, "train", {"note": "no number"})
    assert not events.folder.exists()
    events.write(3, "train", {"loss": 0.1, "count": 7, "note": "x"})
    events.write(4, "valid", {"loss": math.nan})
    head, first, second = read_events(events.folder)
    assert head.file_version == "brain.Event:2"
    values = {value.tag: value.simple_value for value in first.summary.value}
    assert first.step == 3 and values == {"train/loss": pytest.approx(0.1), "train/count": 7}
    assert second.step == 4 and second.summary.value[0].tag == "valid/loss"
    assert math.isnan(second.summary.value[0].simple_value)
    events.close()
    events.close()


def test_resumed_run_hides_what_it_repeats(tmp_path: Path) -> None:
    """After `forget_from(5)` the file starts with a session start at step 5, which makes
    TensorBoard drop step 5 and later.
    """
    from tensorboardX.proto.event_pb2 import SessionLog

    events = Events(tmp_path)
    events.forget_from(5)
    events.write(5, "train", {"loss": 1.0})
    events.close()
    head, start, scalar = read_events(tmp_path)
    assert head.file_version and start.step == 5 and start.session_log.status == SessionLog.START
    assert scalar.step == 5
