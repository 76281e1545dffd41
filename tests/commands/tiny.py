"""Tests of commands share the settings of a tiny run, and call any command in this process."""

import contextlib
import dataclasses
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab.commands import main


def under(node: str, **values: object) -> list[str]:
    """Settings below one node of a config, as flags say them."""
    return [f"{node}.{name}={value}" for name, value in values.items()]


RNN = under("system", embedding=8, encoder=8, decoder=8, maxout=6)
SMALL = {
    "rnn_encoder_decoder": RNN,
    "rnnsearch": [*RNN, "system.attention.score.hidden=8"],
    "transformer": under("system", width=16, hidden=16, layers=1),
}
SHARED = [
    *under("data", examples=160, valid=10, test=4),
    *under("batch", size=16, buckets=32, max_length=32),
    *under("training", steps=12, log_every=3, evaluate_every=6),
    *under("decoding", method="greedy", max_ratio=0.4, max_extra=2, batch=4),
    *("schedule.warmup=2", "checkpoint.every=4"),
]


def arguments(system: str, workdir: Path, *overrides: str) -> list[str]:
    """The train command of a tiny run on dates: 12 steps, evaluated at 6 and 12."""
    return train(f"translation.py:{system}", workdir, *SMALL[system], *SHARED, *overrides)


def on_files(folder: Path, name: str, **counts: int) -> list[str]:
    """Settings of a tiny RNNsearch on parallel files in a folder, which gets them: so many numbered
    lines of each split. The settings call the folder by `name`.
    """
    folder.mkdir()
    for split, count in counts.items():
        for side in ("de", "en"):
            lines = [f"{side} {number} words\n" for number in range(count)]
            (folder / f"{split}.{side}").write_text("".join(lines))
    settings = [line for line in (*SMALL["rnnsearch"], *SHARED) if not line.startswith("data.")]
    return [*settings, "data=files", *under("data", directory=name, source="de", target="en")]


def train(config: str, workdir: Path | str, *settings: str) -> list[str]:
    """The train command of a config in configs/, with these settings."""
    flags = [f"--config.{setting}" for setting in settings]
    return ["train", f"--config=configs/{config}", f"--workdir={workdir}", *flags]


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Runs = Callable[[str], tuple[Path, CommandResult]]
"""What the fixture `runs` gives: of a system, the workdir of a finished run and how it ended."""


def alone(code: str, *argv: str, **how: Any) -> str:
    """What a program prints that ends well in a process of its own."""
    words = [sys.executable, "-c", code, *argv]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_command(argv: list[str], stdin: str | bytes = "") -> CommandResult:
    """Run a command in this process with `stdin` as its input."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    typed = stdin if isinstance(stdin, bytes) else stdin.encode()
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
    finally:
        sys.stdin = before
    return CommandResult(code, out.getvalue(), err.getvalue())


def completed(argv: list[str], stdin: str | bytes = "") -> CommandResult:
    """How a command ended, which must be well, with the exit code 0."""
    ended = run_command(argv, stdin)
    assert ended.code == 0, ended.err
    return ended


def refused(*argv: str, stdin: str = "") -> str:
    """The one line of a command that ends with 2 and prints nothing else.

    Raises:
      AssertionError: another exit code, results on stdout, more than the line.
    """
    ended = run_command([*argv], stdin)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    return ended.err
