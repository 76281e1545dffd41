"""The saved states of a run on the disk, and what of a finished run may go.

    checkpoints/<step>    a whole state, with the optimizer's moments
    params/<step>         the parameters alone, of the step that is used; they count before the others

A run that was pruned says so in its manifest before anything goes, and what remains is whole before
the rest is taken: a kill at any instant leaves a run that can be used. Needs neither jax nor numpy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attnlab.errors import UserError
from attnlab.records import attempts
from attnlab.records.files import timestamp
from attnlab.records.locks import holder, is_held
from attnlab.records.manifest import Manifest, Pruned

Keep = Literal["all", "best", "best-params"]
BEST: Keep = "best"
PARAMS: Keep = "best-params"
KEEPS: dict[Keep, str] = {
    "all": "its latest states and the best",
    "best": "the state that is used, with the optimizer's",
    "best-params": "the parameters of that state",
}
"""What of the states of a finished run stays."""
CHECKPOINTS, ALONE = "checkpoints", "params"


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What is to be taken from a finished run.

    Attributes:
      workdir: its folder.
      keep: what stays of its states.
      step: the one whose state is used.
      take: the folders that go.
      files, size: how many files lie in them, and their bytes.
      writes: bytes of the parameters that are written anew.
    """

    workdir: Path
    keep: Keep
    step: int
    take: tuple[Path, ...]
    files: int
    size: int
    writes: int


def saved_steps(folder: Path) -> list[int]:
    """Returns the numbers of the committed steps in a folder of states, in rising order."""
    if not folder.is_dir():
        return []
    numbered = (path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())
    return sorted(int(path.name) for path in numbered if any(path.iterdir()))


def step_record(folder: Path) -> dict[str, Any]:
    """Reads what is stored beside the arrays of the step in a folder; raises ValueError if its
    checksum or step number differs. Any exception means that the step is damaged.
    """
    meta = json.loads((folder / "meta" / "metadata").read_text())
    content: dict[str, Any] = meta["content"]
    if text_digest(content) != meta["sha256"] or content["step"] != int(folder.name):
        raise ValueError("checksum of meta differs")
    return content


def text_digest(content: object) -> str:
    """Returns the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def used_paths(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Returns the path in a state of each parameter that the run is used with (of the moving average
    if there is one), by the path that it has alone: "params/layer_0/kernel".
    """
    average = any(path.startswith("ema/") for path in arrays)
    begin = "ema/" if average else "params/"
    return {f"params/{p.removeprefix(begin)}": p for p in arrays if p.startswith(begin)}


def prunable(workdir: Path, keep: Keep) -> Pruning:
    """Returns what `prune` takes from a run; raises `UserError` unless the run is done and has its
    results (or, in a sweep, validation scores).

    Raises:
      UserError: no run, one that is not done or without results, or a damaged state.
    """
    manifest = Manifest.read(workdir)
    if manifest is None:
        raise UserError(f"{workdir} holds no run; name the folder of a run or of a sweep")
    state, at, _ = attempts.last_word(attempts.read(workdir))
    if state != "done":
        steps = manifest.config["training"]["steps"]
        raise UserError(
            f"{workdir} is {state} at step {at} of {steps}, and goes on from its states; only a run"
            " that is done is pruned"
        )
    if not any((workdir / name).exists() for name in ("results.json", "valid.json")):
        raise UserError(
            f"{workdir} has no results yet; give its 'train' command again, which writes them"
        )
    return _pruning(workdir, keep)


def check_idle(folder: Path) -> None:
    """Raises `UserError` if a live process holds the lock of a run or a sweep."""
    if is_held(folder):
        raise UserError(f"{folder} is at work ({holder(folder)}); wait for it, or stop it")


def _pruning(workdir: Path, keep: Keep) -> Pruning:
    """Returns what to take from a run that is done; raises `UserError` if the record of the state
    that is used cannot be read, or there is none.
    """
    folder = workdir / CHECKPOINTS
    steps, alone = saved_steps(folder), saved_steps(workdir / ALONE)
    try:
        best = alone[-1] if alone else step_record(folder / str(steps[-1]))["best"]
        step = best if best in (*steps, *alone) else steps[-1]
        arrays = {} if alone else step_record(folder / str(step))["arrays"]
        keep = PARAMS if alone else keep
    except Exception as error:  # a damaged file raises anything
        raise UserError(
            f"{workdir}: the state that is used is missing or damaged ({error}); nothing is taken"
        ) from error
    stays = () if keep == PARAMS else (str(step),)
    take = tuple(path for path in _folders(folder) if path.name not in stays)
    sizes = [file.lstat().st_size for path in take for file in path.rglob("*") if file.is_file()]
    used = used_paths(arrays).values() if keep == PARAMS else ()
    writes = sum(4 * math.prod(arrays[path]["shape"]) for path in used)  # all are float32
    return Pruning(workdir, keep, step, take, len(sizes), sum(sizes), writes)


def _folders(folder: Path) -> list[Path]:
    """Returns the folders of states, damaged and half-written ones too, but no links."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.is_dir() and not path.is_symlink()]


def mark(pruning: Pruning) -> None:
    """Writes into the manifest of a run that it is pruned, before anything goes."""
    manifest = Manifest.read(pruning.workdir)
    assert manifest is not None
    told: Pruned = {"keep": pruning.keep, "step": pruning.step, "time": timestamp()}
    dataclasses.replace(manifest, pruned=told).write(pruning.workdir)


def take(pruning: Pruning) -> None:
    """Deletes the folders of a pruning; each is renamed first, so that none is ever half there."""
    for path in pruning.take:
        gone = (
            path if path.name.startswith("deleting-") else path.with_name(f"deleting-{path.name}")
        )
        if gone != path:
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
        shutil.rmtree(gone)
