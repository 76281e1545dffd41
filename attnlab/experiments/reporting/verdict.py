"""Whether an experiment's claim holds: each of its contrasts judged by an interval over seeds, and the claim by all of them.

A contrast is c = sum over variants of w_v m_v >= a, with m the measure on the test split. Every seed gives one value c_s = sum w_v m_v,s
(the seeds pair the variants), and Student's t gives the interval of their mean, at 1 - 0.05 / k for a claim of k contrasts (Bonferroni):

  supported      the whole interval lies above a
  not supported  the whole interval lies below a, or ends at it
  undecided      anything else: too few seeds for an interval, one that includes a, or a seed without a number
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from typing import Any

from attnlab.experiments.reporting.comparison import ALPHA, Comparison
from attnlab.experiments.reporting.statistics import Interval, t_interval

SUPPORTED, REFUTED, UNDECIDED = "supported", "not supported", "undecided"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A contrast and what the numbers say about it.

    Attributes:
      text: "additive - location >= 0.05".
      at_least: the bound a.
      values: seed to c_s, of the seeds that all its variants have.
      level: of the interval.
      interval: of the mean of c_s, None where there is none.
      outcome: `SUPPORTED`, `REFUTED` or `UNDECIDED`.
      why: what kept it from being decided; "" otherwise.
    """

    text: str
    at_least: float
    values: Mapping[int, float]
    level: float
    interval: Interval | None
    outcome: str
    why: str = ""

    @property
    def mean(self) -> float | None:
        """Of c_s over the seeds."""
        return statistics.fmean(self.values.values()) if self.values else None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim and what became of it.

    Attributes:
      statement: the claim.
      outcome: that of all its contrasts: `SUPPORTED` if all are, `REFUTED` if any is.
      contrasts: one by one.
      seeds: how many the least of them rests on.
    """

    statement: str
    outcome: str
    contrasts: tuple[Judged, ...]
    seeds: int

    @property
    def sentence(self) -> str:
        """The outcome in words, "undecided at 3 seeds: ..."."""
        if self.outcome != UNDECIDED:
            return f"{self.outcome} ({_seeds(self.seeds)})"
        reasons = "; ".join(dict.fromkeys(one.why for one in self.contrasts if one.outcome == UNDECIDED))
        return f"{UNDECIDED} at {_seeds(self.seeds)}: {reasons}" if self.seeds else f"{UNDECIDED}: {reasons}"


def judge(comparison: Comparison, claim: Mapping[str, Any] | None) -> Verdict | None:
    """The verdict on a claim (of `plan.json`); None without one."""
    if claim is None:
        return None
    level = 1 - ALPHA / len(claim["contrasts"])
    judged = tuple(_contrast(comparison, one["weights"], one["at_least"], level) for one in claim["contrasts"])
    outcomes = {one.outcome for one in judged}
    outcome = REFUTED if REFUTED in outcomes else UNDECIDED if UNDECIDED in outcomes else SUPPORTED
    return Verdict(claim["statement"], outcome, judged, min(len(one.values) for one in judged))


def _contrast(comparison: Comparison, weights: Mapping[str, float], at_least: float, level: float) -> Judged:
    """One contrast, undecided unless every seed of every variant in it has a number."""
    rows = {variant: comparison.row(variant) for variant in weights}
    tested = comparison.basis.split == "test"
    found = [row.values for row in rows.values() if row is not None] if tested else []
    common = [seed for seed in found[0] if all(seed in values for values in found)] if len(found) == len(weights) else []
    values = {seed: sum(weight * found[place][seed] for place, weight in enumerate(weights.values())) for seed in common}
    interval = t_interval(list(values.values()), level)
    missing = [f"{variant}: {', '.join(row.missing)}" for variant, row in rows.items() if row is not None and row.missing]
    why = _why(comparison, values, missing, interval, at_least)
    outcome = UNDECIDED if why or interval is None else SUPPORTED if interval[0] > at_least else REFUTED
    return Judged(describe(weights, at_least), at_least, values, level, interval, outcome, why)


def _why(comparison: Comparison, values: Mapping[int, float], missing: list[str], interval: Interval | None, at_least: float) -> str:
    """What keeps a contrast from being decided; "" for nothing."""
    if comparison.basis.split != "test":
        return "the test split is not scored yet"
    if missing:
        return f"not every seed has a number ({'; '.join(missing)})"
    if len(values) < 2:
        return "one seed has no interval" if values else "a variant has no number"
    if interval is None:
        return "every seed gave the same difference, which leaves no spread to judge by"
    return f"the interval includes {at_least:g}" if interval[0] <= at_least < interval[1] else ""


def describe(weights: Mapping[str, float], at_least: float) -> str:
    """A contrast in words: "additive - location >= 0.05", "mean(dot, general) - location >= 0"; other weights are written out."""
    alike: dict[float, list[str]] = {}
    for variant, weight in weights.items():
        alike.setdefault(weight, []).append(variant)
    words = ""
    for weight, variants in sorted(alike.items(), key=lambda one: one[0] < 0):
        sign = " - " if weight < 0 else " + "
        averaged = len(variants) > 1 and math.isclose(abs(weight) * len(variants), 1)
        size = "" if abs(weight) == 1 else f"{abs(weight):g} x "
        words += sign + (f"mean({', '.join(variants)})" if averaged else sign.join(size + one for one in variants))
    return f"{words.removeprefix(' + ').lstrip()} >= {at_least:g}"


def _seeds(number: int) -> str:
    return f"{number} seed{'' if number == 1 else 's'}"
