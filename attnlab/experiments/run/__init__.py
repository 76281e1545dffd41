"""From a plan to its records: processes, slots, locks, the choice on validation and the one look at
the test split.

Imports no jax. `run_sweep` runs a whole sweep; the other functions serve `status`, dry runs and the
report.
"""

from attnlab.experiments.run import ray, slots, slurm
from attnlab.experiments.run.board import (
    Board,
    best,
    failures,
    outlook,
    overview,
    running,
    shown,
    summary,
    troubles,
)
from attnlab.experiments.run.jobs import Part
from attnlab.experiments.run.launcher import SweepOptions, lock, run_sweep, stop_trial, take_back
from attnlab.experiments.run.live import Stop, WorkOptions
from attnlab.experiments.run.planning import draft, ensure
from attnlab.experiments.run.selection import Choice, looked, wanted
from attnlab.experiments.run.slots import devices_wanted, local_slots
from attnlab.experiments.run.state import SILENT_AT_FIRST, Seen, counts, look, look_at_all, recorded
from attnlab.experiments.run.worker import work

__all__ = [
    "SILENT_AT_FIRST", "Board", "Choice", "Part", "Seen", "Stop", "SweepOptions",
    "WorkOptions", "best", "counts", "devices_wanted", "draft", "ensure", "failures", "local_slots",
    "lock", "look", "look_at_all", "looked", "outlook", "overview", "ray", "recorded", "run_sweep",
    "running", "shown", "slots", "slurm", "stop_trial", "summary", "take_back", "troubles", "wanted",
    "work",
]  # fmt: skip
