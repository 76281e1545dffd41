"""The records of a sweep, or of one run, as runs of other trackers: afterwards (`export`), on disk
and without a network, or while they are written (`following.py`).

Every trial that has begun is a run. Its id depends only on the sweep and the trial, so a repeated
export adds new runs, rewrites changed ones, and leaves the rest alone.
"""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.trackers.runs import Store, Tracked, single, tracked
from attnlab.records import tracking

TRACKERS: Mapping[str, str] = {
    "wandb": "attnlab.experiments.report.trackers.wandb_offline",
    "mlflow": "attnlab.experiments.report.trackers.mlflow_store",
    "trackio": "attnlab.experiments.report.trackers.trackio_store",
    "tensorboard": "attnlab.experiments.report.trackers.tensorboard_hparams",
}
"""Tracker to the module whose `Store(where, runs)` writes for it; all but the last, which each run
writes itself, can follow runs too.
"""


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


def tracked_in(directory: Path, folders: Sequence[Path] | None = None) -> list[Tracked]:
    """Returns a list of `Tracked` (runs for a tracker): the single run in `directory` if it has a
    manifest there, otherwise the trials of the sweep in `directory` that have begun (only those in
    the trial folders `folders`, if given); raises `UserError` if there is neither run nor sweep, or
    for a damaged record.
    """
    if (directory / "manifest.json").exists():
        run = single(directory)
        return [] if run is None else [run]
    trials = directory / "trials"
    only = None if folders is None else [str(path.relative_to(trials)) for path in folders]
    return tracked(collect(directory, only))


def export(directory: Path, to: str, out: Path) -> Exported:
    """Writes the trials of a sweep that have begun, or one run, into the folder `out` as runs of
    the tracker `to` (a name of `TRACKERS`), and returns an `Exported`: how many were new, replaced
    or unchanged, and a hint on how to look at them.

    A run that is there under its id with the same records is left alone; one that was half written,
    or whose records have changed, is brought to what they are.

    Raises:
      UserError: no sweep, a damaged record, a package that is not installed.
    """
    runs = tracked_in(directory)
    if to in tracking.TRACKERS:
        tracking.check_installed(to, f"export --to={to}")
    store: Store = importlib.import_module(TRACKERS[to]).Store(str(out), runs)
    digests = store.digests()
    counts = {"written": 0, "replaced": 0, "unchanged": 0}
    for run in runs:
        if digests.get(run.id) == run.digest:
            counts["unchanged"] += 1
            continue
        store.write(run)
        counts["replaced" if run.id in digests else "written"] += 1
    return Exported(**counts, hint=store.hint)


__all__ = ["TRACKERS", "Exported", "export", "tracked_in"]
