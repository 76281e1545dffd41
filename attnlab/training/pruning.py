"""The saved states of a run on the disk, and what of a finished run may go. Importing needs no jax.

    checkpoints/<step>    a whole state, with the optimizer's moments
    params/<step>         the parameters alone, of the step that is used; they count before the others

What stays is read, compared with its checksums and, of parameters, written before anything goes, and
the manifest says it: killed at any instant, a run is used as before.
"""

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
from attnlab.records.provenance import saved_steps as saved_steps

Keep = Literal["all", "best", "best-params"]
"""What stays of the states of a finished run: all, the one that is used, or the parameters of that."""
CHECKPOINTS, ALONE = "checkpoints", "params"


def prunable(workdir: Path, keep: Keep) -> tuple[int, list[Path]]:
    """Returns the step that a run is used with, and the folders of saved states to delete: all but
    that step ("best"), or all ("best-params", or if parameters are saved alone already); raises
    `UserError` if it is not done, has no scores or is damaged.

    Raises:
      UserError: no run, one that is not done or has no scores yet, or a damaged state.
    """
    if Manifest.read(workdir) is None:
        raise UserError(f"{workdir} holds no run; name the folder of a run or of a sweep")
    state, step, _ = attempts.last_word(attempts.read(workdir))
    scored = any((workdir / name).exists() for name in ("results.json", "valid.json"))
    if state != "done" or not scored:
        stage = f"not scored yet ('train --workdir={workdir}' does it)"
        stage = stage if state == "done" else f"{state} at step {step}"
        raise UserError(f"{workdir} is {stage}, and goes on from its states; they stay until then")
    folder, alone = workdir / CHECKPOINTS, saved_steps(workdir / ALONE)
    try:
        steps = alone or saved_steps(folder)
        best = steps[-1] if alone else _record(folder / str(steps[-1]))["best"]
    except Exception as error:  # a damaged file raises anything
        raise UserError(f"{workdir}: its newest state is missing or damaged ({error})") from error
    step = best if best in steps else steps[-1]
    stays = [] if alone or keep == "best-params" else [folder / str(step)]
    owned = (path for path in sorted(folder.glob("*")) if path.is_dir() and not path.is_symlink())
    return step, [path for path in owned if path not in stays]


def prune(workdir: Path, keep: Keep) -> None:
    """Deletes the saved states of a finished run but the one that is used, after a check of its
    checksums, and with "best-params" that too, once its parameters are saved alone; writes `keep`
    into the manifest ("best-params" if they were saved alone before); does nothing if no state can
    go. The caller holds the run's lock.

    Raises:
      UserError: as `prunable`; or the disk is full. Nothing is gone then.
    """
    step, folders = prunable(workdir, keep)
    manifest, alone = Manifest.read(workdir), workdir / ALONE
    if not folders or manifest is None:
        return
    if saved_steps(alone):
        keep = "best-params"
    else:
        _check_and_copy(workdir / CHECKPOINTS, step, alone if keep == "best-params" else None)
    dataclasses.replace(manifest, pruned=keep).write(workdir)
    for path in folders:
        gone = path.with_name(f"deleting-{path.name.removeprefix('deleting-')}")
        if path != gone:  # so that no step is ever half there
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
        shutil.rmtree(gone)


def _check_and_copy(folder: Path, step: int, alone: Path | None) -> None:
    """Reads the state of `step` in `folder` and compares it with its checksums; unless `alone` is
    None, writes its parameters (of the moving average if there is one) as a step into that folder
    and checks them too; raises `UserError` for a damage.
    """
    import jax

    from attnlab.training.checkpoints import Checkpoints, Single

    arrays: dict[str, Any] = _record(folder / str(step))["arrays"]
    like = {path: jax.ShapeDtypeStruct(x["shape"], x["dtype"]) for path, x in arrays.items()}
    with closing(Checkpoints(folder, 1, read_only=True)) as states:
        restored = states.restore(like, step)
    if alone is not None and restored is not None:
        tree = {f"params/{path}": array for path, array in _used(restored.tree).items()}
        with closing(Single(alone, 1)) as states:
            # those that lay on a mesh have other fingerprints now
            states.save(step, tree, {**restored.meta, "used": _used(arrays)}, best=True)
            states.restore(tree, step)


def used_prints(workdir: Path) -> dict[str, Any]:
    """Returns the fingerprints of the parameters that a run is used with, by path: those of before
    if it was pruned. Any exception means damage.
    """
    alone = saved_steps(workdir / ALONE)
    folder = workdir / (ALONE if alone else CHECKPOINTS)
    steps = alone or saved_steps(folder)
    best = _record(folder / str(steps[-1]))["best"]
    record = _record(folder / str(best if best in steps else steps[-1]))
    prints: dict[str, Any] = record["meta"].get("used") or _used(record["arrays"])
    return prints


def _used(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the arrays of a state, by path, that are used: the parameters, of the moving
    average if there is one.
    """
    begin = "ema/" if any(path.startswith("ema/") for path in arrays) else "params/"
    return {path.removeprefix(begin): x for path, x in arrays.items() if path.startswith(begin)}


def _record(folder: Path) -> dict[str, Any]:
    """Reads what is stored beside the arrays of a step, unverified; any exception means damage."""
    content: dict[str, Any] = json.loads((folder / "meta" / "metadata").read_text())["content"]
    return content
