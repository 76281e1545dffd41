"""From an experiment to `plan.json`: every candidate resolved, checked and counted. Imports no jax.

`process` makes a `Plan` and needs jax; `attnlab.experiments.run` calls it in a process of its own.
"""

from attnlab.experiments.plan.candidate import Candidate, Trial
from attnlab.experiments.plan.growth import own_files, unchanged_plan
from attnlab.experiments.plan.plan import Plan, locked, read_tasks, write_tasks

__all__ = [
    "Candidate", "Plan", "Trial", "locked", "own_files", "read_tasks", "unchanged_plan", "write_tasks",
]  # fmt: skip
