"""Statistics of differences over seeds and over test examples. Pure functions of numbers; numpy and
scipy are imported when they are called.

  Family   variants on one measure: means, differences to a baseline (Dunnett), all pairs (Tukey), claims, power
  Scale    bounds of the measure, and how many test examples it counts
  compare  two systems over test examples: paired bootstrap and approximate randomisation
  spent    the level of each look, for those who add seeds until satisfied

How the method was chosen, with its measured error rates: docs/report.md and
benchmarks/statistics.py.
"""

from __future__ import annotations

from attnlab.experiments.report.statistics.family import (
    AGREE,
    ALPHA,
    INCLUDES,
    ONE_SEED,
    REFUTED,
    SUPPORTED,
    TIE,
    UNDECIDED,
    Decision,
    Difference,
    Family,
    Share,
    Summary,
    conjunction,
)
from attnlab.experiments.report.statistics.items import Sampled, compare, mean_score
from attnlab.experiments.report.statistics.looks import spent
from attnlab.experiments.report.statistics.power import (
    CHANCE,
    chance_to_find,
    detectable,
    seeds_needed,
)
from attnlab.experiments.report.statistics.scale import UNBOUNDED, Interval, Scale

__all__ = [
    "AGREE", "ALPHA", "CHANCE", "INCLUDES", "ONE_SEED", "REFUTED", "SUPPORTED", "TIE", "UNBOUNDED", "UNDECIDED", "Decision",
    "Difference",
    "Family", "Interval", "Sampled", "Scale", "Share", "Summary", "chance_to_find", "compare",
    "conjunction", "detectable", "mean_score", "seeds_needed", "spent",
]  # fmt: skip
