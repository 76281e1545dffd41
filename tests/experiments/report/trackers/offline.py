"""A sweep to export, and what is read back of an export."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.experiments.synthetic import claim, sweep

NAN = float("nan")
BLOCK = 32768


def made(directory: Path) -> Path:
    """Two variants with two candidates each and two seeds, one trial diverged."""
    sooner = claim({"additive": 1.0, "location": -1.0}, on="steps_to(loss<=1.5)")
    scores = {"additive": (0.9, 0.8), "location": (0.4, NAN)}
    return sweep(directory, scores, tuned={0.001: 0.5, 0.003: 0.0}, claim=sooner)


def change(directory: Path) -> None:
    """Let one trial have another score, as one that has gone on has."""
    path = sorted(directory.glob("trials/*/seed0/valid.json"))[0]
    path.write_text(path.read_text().replace('"loss": ', '"loss": 1'))


def events(path: Path) -> Iterator[bytes]:
    """The records of a TensorBoard event file."""
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield content[12 : 12 + length]
        content = content[16 + length :]


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of a `.wandb` file: blocks of 32 KiB of checked pieces, as LevelDB's log has
    them, after seven bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # full, or the last piece
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record
