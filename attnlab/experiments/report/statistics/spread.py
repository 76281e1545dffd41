"""Quantiles, intervals by resampling and the size of an effect.

Sources: Efron (1987) for BCa intervals; Hedges (1981) for the correction of d.
"""

import math
import statistics
from collections.abc import Sequence

from attnlab.experiments.report.statistics.scale import ROUNDING, Interval

RESAMPLES = 9999


def quantile(freedom: float, p: float) -> float:
    """Returns the quantile of Student's t at probability `p`; the normal's for infinitely many
    degrees of freedom.
    """
    from scipy import special

    return float(special.ndtri(p) if math.isinf(freedom) else special.stdtrit(freedom, p))


def upper_tail(freedom: float, t: float) -> float:
    """Returns P(T > t) of Student's t, or of the normal for infinitely many degrees of freedom."""
    from scipy import special

    return float(special.ndtr(-t) if math.isinf(freedom) else special.stdtr(freedom, -t))


def bootstrap_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Returns the bias-corrected and accelerated (BCa) bootstrap interval of the mean, always from
    the same resamples, or None if all values agree or there is only one.

    With fewer than about ten values it is too narrow: it cannot reach beyond the smallest and the
    largest of them.
    """
    if len(values) < 2 or max(values) - min(values) <= ROUNDING * max(map(abs, values)):
        return None
    import numpy as np
    from scipy import stats

    resampled = stats.bootstrap(
        (list(values),),
        np.mean,
        confidence_level=level,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(0),
    )
    return float(resampled.confidence_interval.low), float(resampled.confidence_interval.high)


def effect_size(difference: float, variance: float, freedom: float) -> float | None:
    """Returns Hedges' g = J(f) difference / sqrt(variance), the difference of means in standard
    deviations of one run with f = `freedom`, or None for f < 2 or no variance.

    J(f) = Gamma(f / 2) / (sqrt(f / 2) Gamma((f - 1) / 2)) takes out the bias of few degrees of
    freedom.
    """
    if freedom < 2 or variance <= 0:
        return None
    logarithm = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)
    correction = math.exp(logarithm) / math.sqrt(freedom / 2)
    return correction * difference / math.sqrt(variance)


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1), or None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None
