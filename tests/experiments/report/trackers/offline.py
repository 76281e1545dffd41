"""A sweep to export, and what is read back of an export."""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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


def read_wandb(path: Path) -> Iterator[Any]:
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


STAND_IN = """
import json, os, pathlib, time, types

def Settings(**given):
    return given

def init(**given):
    name = f"offline-run-{time.time_ns()}-{given['id']}"
    file = pathlib.Path(given["dir"], "wandb", name, "told.jsonl")
    file.parent.mkdir(parents=True)

    def tell(*words):
        with open(file, "a") as lines:
            lines.write(json.dumps(words) + "\\n")

    tell("begin", given["name"], given)
    summary = types.SimpleNamespace(update=lambda final: tell("final", final))
    return types.SimpleNamespace(
        log=lambda values, step: tell("log", step, values),
        finish=lambda exit_code: tell("finish", exit_code),
        summary=summary,
        step=0,
    )
"""
"""A `wandb` that writes what it is told into a folder for each run."""


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Put packages of trackers into a folder, by default all, that this process and those that it
    starts import before others; the one of W&B is `STAND_IN`.
    """
    folder.mkdir()
    for name in names or ("wandb", "mlflow", "sqlalchemy", "alembic", "trackio"):
        (folder / f"{name}.py").write_text(STAND_IN if name == "wandb" else "")
    monkeypatch.syspath_prepend(folder)
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{path}" if path else str(folder))


def wandb_told(out: Path, identity: str) -> list[list[Any]]:
    """What the stand-in for W&B was told of the one run with this id."""
    (file,) = (out / "wandb").glob(f"offline-run-*-{identity}/told.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]
