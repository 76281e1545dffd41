"""The saved states of a run on the disk, and what of a finished run may go. Importing needs no jax.

    checkpoints/<step>    a whole state, with the optimizer's moments
    params/<step>         the parameters alone, of the step that is used; they count before the others

What stays is read, compared with its checksums and, of parameters, written before anything goes, and
the manifest says it: killed at any instant, a run is used as before.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from attnlab.errors import UserError
from attnlab.records import attempts
from attnlab.records.manifest import Manifest

Keep = Literal["all", "best", "best-params"]
"""What stays of the states of a finished run: all, the one that is used, or the parameters of that."""
CHECKPOINTS, ALONE = "checkpoints", "params"


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What is to go of a finished run.

    Attributes:
      workdir: its folder.
      keep: what stays.
      step: the one whose state is used.
      folders: what goes.
      files, size: how many files lie in them, and their bytes.
    """

    workdir: Path
    keep: Keep
    step: int
    folders: tuple[Path, ...]
    files: int
    size: int


def saved_steps(folder: Path) -> list[int]:
    """Returns the numbers of the committed steps in a folder of states, in rising order."""
    if not folder.is_dir():
        return []
    numbered = (path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())
    return sorted(int(path.name) for path in numbered if any(path.iterdir()))


def prunable(workdir: Path, keep: Keep) -> Pruning:
    """Returns what goes of a run so that `keep` stays.

    Raises:
      UserError: no run, one that is not done or has no scores yet, or a damaged state.
    """
    if Manifest.read(workdir) is None:
        raise UserError(f"{workdir} holds no run; name the folder of a run or of a sweep")
    state, at, _ = attempts.last_word(attempts.read(workdir))
    scored = any((workdir / name).exists() for name in ("results.json", "valid.json"))
    if state != "done" or not scored:
        what = f"{state} at step {at}" if state != "done" else "not scored yet"
        raise UserError(f"{workdir} is {what}, and goes on from its states; they stay until then")
    folder, alone = workdir / CHECKPOINTS, saved_steps(workdir / ALONE)
    try:
        steps = alone or saved_steps(folder)
        best = steps[-1] if alone else _record(folder / str(steps[-1]))["best"]
        step = best if best in steps else steps[-1]
    except Exception as error:  # a damaged file raises anything
        raise UserError(f"{workdir}: its newest state is missing or damaged ({error})") from error
    stays = [] if alone or keep == "best-params" else [folder / str(step)]
    folders = [path for path in folder.glob("*") if path not in stays and path.is_dir()]
    sizes = [file.lstat().st_size for path in folders for file in path.rglob("*") if file.is_file()]
    return Pruning(
        workdir, "best-params" if alone else keep, step, tuple(folders), len(sizes), sum(sizes)
    )


def prune(pruning: Pruning) -> None:
    """Takes what a pruning lists, if anything. The caller holds the run's lock.

    Raises:
      UserError: the state that is used is damaged, or the disk is full; nothing is gone.
    """
    folder, alone = pruning.workdir / CHECKPOINTS, pruning.workdir / ALONE
    if pruning.folders and not saved_steps(alone):
        _secure(folder, pruning.step, alone if pruning.keep == "best-params" else None)
    manifest = Manifest.read(pruning.workdir)
    if pruning.folders and manifest is not None:
        dataclasses.replace(manifest, pruned=pruning.keep).write(pruning.workdir)
    for path in pruning.folders:
        gone = folder / f"deleting-{path.name.removeprefix('deleting-')}"
        if path != gone:  # so that no step is ever half there
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
        shutil.rmtree(gone)


def _secure(folder: Path, step: int, alone: Path | None) -> None:
    """Reads a state and compares it with its checksums; writes its parameters (of the moving average
    if there is one) as a step of `alone`, and compares these too; raises `UserError` for a damage.
    """
    import jax

    from attnlab.training.checkpoints import Checkpoints, Single

    arrays: Mapping[str, Any] = _record(folder / str(step))["arrays"]
    like = {p: jax.ShapeDtypeStruct(a["shape"], a["dtype"]) for p, a in arrays.items()}
    with closing(Checkpoints(folder, 1, read_only=True)) as states:
        restored = states.restore(like, step)
    if alone is None or restored is None:
        return
    begin = "ema/" if any(path.startswith("ema/") for path in like) else "params/"
    used = {f"params/{p.removeprefix(begin)}": p for p in like if p.startswith(begin)}
    tree = {path: restored.tree[old] for path, old in used.items()}
    with closing(Single(alone, 1)) as states:
        states.save(step, tree, restored.meta, best=True)
        states.restore(tree, step)


def _record(folder: Path) -> dict[str, Any]:
    """Reads what is stored beside the arrays of a step, unverified; any exception means damage."""
    content: dict[str, Any] = json.loads((folder / "meta" / "metadata").read_text())["content"]
    return content
