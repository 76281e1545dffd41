"""Statistics over seeds: intervals, paired tests, Holm's correction, effect sizes.

Every function says None where the numbers say nothing: with one seed, and where all seeds gave the same value. Equal values leave no
spread to judge by; they come from a measure at its ceiling as well as from a seed that changes nothing, and only a person can tell which.

Source: Efron (1987) for BCa intervals; Holm (1979); Hedges (1981) for the correction of d; the rest is Student's t. By scipy.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

Interval = tuple[float, float]

LEVEL = 0.95
RESAMPLES = 9999
_NO_SPREAD = 1e-9  # of the largest value: differences of rounded decimals are never quite equal


@dataclasses.dataclass(frozen=True)
class Summary:
    """Values of one variant over seeds.

    Attributes:
      n: how many there are.
      mean: None without any.
      std: sample standard deviation (n - 1); None for fewer than two.
      interval: of the mean; None for fewer than two values or where all are equal.
    """

    n: int
    mean: float | None
    std: float | None
    interval: Interval | None


def summary(values: Sequence[float], method: str = "t", level: float = LEVEL) -> Summary:
    """Mean, spread and `level` interval (by `INTERVALS[method]`) of values."""
    n = len(values)
    mean = statistics.fmean(values) if n else None
    return Summary(n, mean, statistics.stdev(values) if n > 1 else None, INTERVALS[method](values, level))


def spread(values: Sequence[float]) -> bool:
    """Whether there are at least two values and they differ by more than rounding."""
    return len(values) > 1 and max(values) - min(values) > _NO_SPREAD * max(map(abs, values))


def t_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """mean -+ t(n - 1) std / sqrt(n); None without spread."""
    if not spread(values):
        return None
    from scipy import stats

    scale = statistics.stdev(values) / math.sqrt(len(values))
    low, high = stats.t.interval(level, len(values) - 1, loc=statistics.fmean(values), scale=scale)
    return float(low), float(high)


def bootstrap_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """The bias-corrected and accelerated bootstrap interval of the mean, always from the same resamples; None without spread.

    With fewer than about ten values it is too narrow: it cannot reach beyond the smallest and the largest of them.
    """
    if not spread(values):
        return None
    import numpy as np
    from scipy import stats

    found = stats.bootstrap(
        (list(values),), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa", rng=np.random.default_rng(0)
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


INTERVALS: Mapping[str, Callable[[Sequence[float], float], Interval | None]] = {"t": t_interval, "bootstrap": bootstrap_interval}
"""How an interval of a mean is made, by the name that `report --interval` takes."""


def paired_p(differences: Sequence[float]) -> float | None:
    """The two-sided p value of Student's t test that paired differences have mean 0; None without spread."""
    if not spread(differences):
        return None
    from scipy import stats

    return float(stats.ttest_1samp(list(differences), 0.0).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment, in the order given: p(i) -> max over j <= i of min(1, (m - j + 1) p(j)), sorted from the smallest.

    A comparison without a p value stays without, but counts in m: it was one of those looked at.
    """
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    ranked = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    for rank, (p, place) in enumerate(ranked):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p))
        adjusted[place] = highest
    return adjusted


def effect_size(differences: Sequence[float]) -> float | None:
    """Cohen's d_z of paired differences with Hedges' correction, J(n - 1) mean / std; None for fewer than three or without spread.

    J(f) = Gamma(f / 2) / (sqrt(f / 2) Gamma((f - 1) / 2)), which is 0 for f = 1: two pairs say nothing about the size.
    """
    freedom = len(differences) - 1
    if freedom < 2 or not spread(differences):
        return None
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    return correction * statistics.fmean(differences) / statistics.stdev(differences)
