"""Experiments: a question, what is compared, and how the answer is found. An experiment file
imports what it needs from here.

Four rooms in the order of the work: `define` (what a file states), `plan` (`plan.json`), `run`
(trials, the choice, the one look at the test split) and `report`. Other rooms import from their
`__init__.py` only.
"""

from attnlab.experiments.define import (
    Axis,
    Budget,
    Claim,
    Contrast,
    Experiment,
    Point,
    Search,
    better,
    choice,
    cross,
    grid,
    integers,
    log_uniform,
    rows,
    uniform,
    zipped,
)

__all__ = [
    "Axis",
    "Budget",
    "Claim",
    "Contrast",
    "Experiment",
    "Point",
    "Search",
    "better",
    "choice",
    "cross",
    "grid",
    "integers",
    "log_uniform",
    "rows",
    "uniform",
    "zipped",
]
