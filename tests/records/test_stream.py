"""Metric stream and status: what a second process, a kill and a torn line find. TensorBoard
event files are read back with TensorBoard's framing and protocol buffers.
"""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c

from attnlab.records.stream import Events, Metrics, best_record, read_records
from tests.refusals import check_refused


def run(workdir: Path, start: int, stop: int, rewind: bool = False) -> None:
    """What a loop writes for the steps after `start` up to `stop`."""
    metrics = Metrics(workdir, tensorboard=False)
    if rewind:
        metrics.rewind(start or None)
    for step in range(start + 1, stop + 1):
        values = {"loss": np.float32(1) / np.float32(step), "tokens": np.int64(step)}
        metrics.write(step, "train", values)
        if step % 3 == 0:
            metrics.write(step, "valid", {"zeta": 1 / step, "alpha": math.pi**step})
    metrics.close()


@pytest.mark.parametrize("restored", [0, 3, 5, 9])
def test_rewound_stream_equals_the_uninterrupted_one(restored: int, tmp_path: Path) -> None:
    """Killed after step 10 with a torn line, restored at an earlier step, continued to 12: byte for
    byte the same file.
    """
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    run(tmp_path / "whole", 0, 12)
    run(tmp_path / "killed", 0, 10)
    with open(tmp_path / "killed" / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 11, "split": "tra')
    run(tmp_path / "killed", restored, 12, rewind=True)
    killed, whole = (tmp_path / name / "metrics.jsonl" for name in ("killed", "whole"))
    assert killed.read_bytes() == whole.read_bytes()


def test_records_keep_order_and_bits(tmp_path: Path) -> None:
    """Keys as given, floats to the last bit, float32 without a change of value, NaN and infinity
    too.
    """
    values = {"z": 0.1 + 0.2, "a": np.float32(0.1), "tiny": 5e-324, "bad": math.nan}
    values |= {"worse": -math.inf, "text": "ü\u2028"}
    metrics = Metrics(tmp_path, tensorboard=False)
    metrics.write(1, "train", values)
    metrics.close()
    (record,) = read_records(tmp_path / "metrics.jsonl")
    assert list(record) == ["step", "split", *values]
    assert math.isnan(record.pop("bad")) and record["a"] == float(np.float32(0.1))
    assert all(record[name] == values[name] for name in ("z", "tiny", "worse", "text"))


def test_metrics_hold_no_time_and_timing_does(tmp_path: Path) -> None:
    """Two runs write the same metrics.jsonl; wall-clock values are elsewhere and survive a
    rewind.
    """
    metrics = Metrics(tmp_path, tensorboard=False)
    metrics.write(1, "train", {"loss": 2.0})
    metrics.time(1, {"step_time": np.float64(0.5)})
    metrics.sync()
    metrics.rewind(None)
    metrics.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""
    (timing,) = read_records(tmp_path / "timing.jsonl")
    assert timing["step_time"] == 0.5 and timing["step"] == 1 and timing["time"] > 0


def test_rewind_without_change_leaves_the_file_alone(tmp_path: Path) -> None:
    """Nothing to drop, nothing written; nothing there, nothing made."""
    metrics = Metrics(tmp_path, tensorboard=False)
    metrics.rewind(4)
    assert not metrics.path.exists() and read_records(metrics.path) == []
    run(tmp_path, 0, 4)
    before = metrics.path.stat().st_ino
    metrics.rewind(4)
    assert metrics.path.stat().st_ino == before


WRONG = [b"garbage\n", b'{"split": "train"}\n', b"[1]\n", b"\x00\x00\n", b"\xff\n"]


@pytest.mark.parametrize("line", WRONG)
def test_damaged_line_in_the_middle_is_named(line: bytes, tmp_path: Path) -> None:
    """Only the last line may be torn: elsewhere the file and line number are told and nothing is
    dropped.
    """
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'{"step": 3}\n')
    before = path.read_bytes()
    check_refused(f"{path}, line 2 is no", Metrics(tmp_path, tensorboard=False).rewind, 3)
    assert path.read_bytes() == before


def test_events_follow_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard gets metrics by split and timing as `timing/...`, and forgets from the step after
    the restored one.
    """
    steps: list[Any] = []
    monkeypatch.setattr(Events, "write", lambda self, *arguments: steps.append(arguments))
    monkeypatch.setattr(Events, "forget_from", lambda self, step: steps.append(step))
    metrics = Metrics(tmp_path)
    metrics.rewind(6)
    metrics.write(7, "valid", {"loss": np.float32(0.5)})
    metrics.time(7, {"step_time": 0.1})
    metrics.close()
    assert steps == [7, (7, "valid", {"loss": 0.5}), (7, "timing", {"step_time": 0.1})]


@pytest.mark.quick
def test_the_best_record_is_of_the_score_that_chooses_and_of_equal_ones_of_the_lower_loss() -> None:
    losses, scores = (math.nan, 1.5, 1.0, 1.0, 2.0, 3.0), (math.nan, 0.5, 0.5, 0.5, 0.6, 0.6)
    records = [
        {"step": step, "split": "valid", "loss": loss, "accuracy": score}
        for step, (loss, score) in enumerate(zip(losses, scores, strict=True), 1)
    ]
    records.insert(1, {"step": 1, "split": "train", "loss": 0.0})
    assert best_record(records, "loss", "min")["step"] == 3
    assert best_record(records, "accuracy", "max")["step"] == 5
    assert best_record(records[:5], "accuracy", "max")["step"] == 3
    # no number: the last there is, which no choice will take
    assert best_record(records[:2], "loss", "min")["step"] == 1


def read_events(folder: Path) -> list[Any]:
    """All events of the folder's only file, both checksums of each record verified."""
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
    events = Events(tmp_path)
    events.forget_from(5)
    events.write(5, "train", {"loss": 1.0})
    events.close()
    head, start, scalar = read_events(tmp_path)
    assert head.file_version and start.step == 5 and start.session_log.status == SessionLog.START
    assert scalar.step == 5
