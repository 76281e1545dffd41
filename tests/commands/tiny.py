"""The train command of a tiny run, and a way to call any command in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from pathlib import Path

from attnlab.commands import main

SMALL = {
    "rnn_encoder_decoder": [
        "system.embedding=8",
        "system.encoder=8",
        "system.decoder=8",
        "system.maxout=6",
    ],
    "rnnsearch": [
        "system.embedding=8",
        "system.encoder=8",
        "system.decoder=8",
        "system.maxout=6",
        "system.attention.score.hidden=8",
    ],
    "transformer": ["system.width=16", "system.hidden=16", "system.layers=1"],
}
SHARED = [
    "data.examples=160",
    "data.valid=10",
    "data.test=4",
    "batch.size=16",
    "batch.buckets=32",
    "batch.max_length=32",
]
SHARED += [
    "training.steps=12",
    "training.log_every=3",
    "training.evaluate_every=6",
    "schedule.warmup=2",
    "checkpoint.every=4",
]
SHARED += [
    "decoding.method=greedy",
    "decoding.max_ratio=0.4",
    "decoding.max_extra=2",
    "decoding.batch=4",
]


def arguments(system: str, workdir: Path, *overrides: str) -> list[str]:
    """The train command of a tiny run on dates: 12 steps, evaluated at 6 and 12."""
    settings = [f"--config.{one}" for one in (*SMALL[system], *SHARED, *overrides)]
    return ["train", f"--config=configs/translation.py:{system}", f"--workdir={workdir}", *settings]


@dataclasses.dataclass(frozen=True)
class Called:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def called(argv: list[str], stdin: str = "") -> Called:
    """Run a command in this process with `stdin` as its input."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
    finally:
        sys.stdin = before
    return Called(code, out.getvalue(), err.getvalue())
