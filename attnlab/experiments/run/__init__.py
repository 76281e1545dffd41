"""From a plan to its records: processes, slots, locks, the choice on validation and the one look at
the test split.

Imports no jax. `conduct` runs a whole sweep; the other functions serve `status`, dry runs and the
report.
"""

from attnlab.experiments.run import slurm
from attnlab.experiments.run.board import Board, overview, shown, summary, troubles
from attnlab.experiments.run.jobs import Part
from attnlab.experiments.run.launcher import lock, read, stop_trial, take_back
from attnlab.experiments.run.looks import looked
from attnlab.experiments.run.selection import Choice, wanted
from attnlab.experiments.run.slots import (
    MOST_SLOTS,
    Slot,
    fitted,
    local_slots,
    planned_cores,
)
from attnlab.experiments.run.standing import best, running
from attnlab.experiments.run.state import Seen, counts, look, look_at_all, recorded
from attnlab.experiments.run.stop import Stop
from attnlab.experiments.run.sweeping import Ended, How, conduct, devices_wanted, outlook
from attnlab.experiments.run.worker import work

__all__ = [
    "MOST_SLOTS",
    "Board",
    "Choice",
    "Ended",
    "How",
    "Part",
    "Seen",
    "Slot",
    "Stop",
    "best",
    "conduct",
    "counts",
    "devices_wanted",
    "fitted",
    "local_slots",
    "lock",
    "look",
    "look_at_all",
    "looked",
    "outlook",
    "overview",
    "planned_cores",
    "read",
    "recorded",
    "running",
    "shown",
    "slurm",
    "stop_trial",
    "summary",
    "take_back",
    "troubles",
    "wanted",
    "work",
]
