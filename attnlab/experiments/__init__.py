"""Experiments: a question, what is compared, and how the answer is found. An experiment file imports what it needs from here."""

from attnlab.experiments.axes import Axis, Point, cross, grid, rows, zipped
from attnlab.experiments.experiment import Budget, Claim, Contrast, Experiment, better
from attnlab.experiments.search import Search, choice, integers, log_uniform, uniform

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
