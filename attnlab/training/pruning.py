"""Pruning of the states of a finished run: what is used is read, checked and, alone, written again
before anything else goes; see `attnlab.records.states`.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from attnlab.errors import UserError
from attnlab.records.states import (
    ALONE,
    CHECKPOINTS,
    PARAMS,
    Pruning,
    mark,
    saved_steps,
    take,
    used_paths,
)
from attnlab.training.orbax_steps import OrbaxSteps, StepRecord, disk_full, short_reason
from attnlab.training.step import Tree


def prune(pruning: Pruning) -> None:
    """Takes from a run what a pruning lists, if anything. The caller holds the run's lock.

    Raises:
      UserError: the state that is used is damaged, or the disk is full; nothing was taken.
    """
    if not pruning.take:
        return
    alone = pruning.workdir / ALONE
    if not saved_steps(alone):
        arrays, record = _read(pruning.workdir / CHECKPOINTS, pruning.step)
        if pruning.keep == PARAMS:
            paths = used_paths(record["arrays"])
            _write(alone, pruning.step, {path: arrays[old] for path, old in paths.items()}, record)
    mark(pruning)
    take(pruning)


def _read(folder: Path, step: int) -> tuple[dict[str, Tree], StepRecord]:
    """Returns the arrays of a step and its record, compared with their checksums; raises
    `UserError` if they are damaged.
    """
    with closing(OrbaxSteps(folder)) as store:
        try:
            record = store.read_record(step)
            return store.read_arrays(step, record["arrays"]), record
        except Exception as error:  # orbax raises anything
            raise UserError(
                f"checkpoint {folder / str(step)} is damaged ({short_reason(error)}); nothing is"
                " taken"
            ) from error


def _write(folder: Path, step: int, arrays: dict[str, Tree], record: StepRecord) -> None:
    """Writes arrays as the one step of a folder and reads them again; raises `UserError` if the disk
    is full.
    """
    try:
        shutil.rmtree(folder, ignore_errors=True)  # what a killed one has left
        folder.mkdir()
        with closing(OrbaxSteps(folder)) as store:
            store.write(step, arrays, {"best": record["best"], "meta": record["meta"]})
            store.wait()
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = "no space left on its disk" if disk_full(error) else short_reason(error)
        raise UserError(f"cannot write {folder} ({why}); nothing is taken") from error
    _read(folder, step)
