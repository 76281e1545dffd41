"""The records of a sweep as runs of other trackers, on disk and without a network.

Every trial that has begun is a run. Its id depends only on the sweep and the trial, so a repeated
export adds new runs, rewrites changed ones, and leaves the rest alone.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.trackers.runs import Tracker, tracked

TRACKERS: Mapping[str, str] = {
    "wandb": "attnlab.experiments.report.trackers.wandb_offline",
    "mlflow": "attnlab.experiments.report.trackers.mlflow_store",
    "tensorboard": "attnlab.experiments.report.trackers.tensorboard_hparams",
}
"""Tracker to the module whose `Store(out, runs)` writes for it."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """What an export did.

    Attributes:
      written, replaced, unchanged: numbers of runs: new ones; those whose records had changed; those
        that were there as they are.
      hint: how to look at them.
    """

    written: int
    replaced: int
    unchanged: int
    hint: str


def export(directory: Path, to: str, out: Path) -> Exported:
    """Writes the trials of a sweep that have begun, as runs of the tracker `to` (a name of
    `TRACKERS`), into the folder `out`, and returns how many were new, replaced or unchanged.

    A run that is there under its id with the same records is left alone. One that was half written,
    or whose records have changed, is removed and written anew.

    Raises:
      UserError: no sweep, a damaged record, a package that is not installed.
    """
    runs = tracked(collect(directory))
    store: Tracker = importlib.import_module(TRACKERS[to]).Store(out, runs)
    held = store.held()
    counts = {"written": 0, "replaced": 0, "unchanged": 0}
    for run in runs:
        if held.get(run.id) == run.digest:
            counts["unchanged"] += 1
            continue
        if run.id in held:
            store.remove(run.id)
        store.write(run)
        counts["replaced" if run.id in held else "written"] += 1
    return Exported(**counts, hint=store.hint)


__all__ = ["TRACKERS", "Exported", "export"]
