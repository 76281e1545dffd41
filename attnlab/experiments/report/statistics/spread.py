"""Values over seeds: quantiles, intervals by resampling and the size of an effect; and seeds that
lie apart, training that failed unnoticed or that ends in one of two optima.

Sources: Efron (1987) for BCa intervals; Hedges (1981) for the correction of d.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

from attnlab.experiments.report.statistics.scale import ROUNDING, Interval

RESAMPLES = 9999
GAP = 6.0  # spreads of the other variants: how wide the gap must be at least


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


def spread(values: Sequence[float]) -> float:
    """Returns the standard deviation of at least two values; from five values on a robust estimate
    of it, the scaled median distance from the median, which a failed seed or two do not move.
    """
    if len(values) < 5:
        return statistics.stdev(values)
    from scipy import stats

    return float(stats.median_abs_deviation(values, scale="normal"))


def typical(deviations: Sequence[float]) -> float:
    """Returns the `spread` that two thirds of the other variants do not exceed, which failed seeds
    in some of them hardly change; 0 without any.
    """
    return sorted(deviations)[2 * (len(deviations) - 1) // 3] if deviations else 0.0


def apart(values: Mapping[int, float], usual: float, rounding: float) -> tuple[int, ...]:
    """Returns the seeds on the smaller side of the widest gap between a variant's values (seed to
    value), if the gap is too wide to be chance (by their range, the `usual` spread of the other
    variants and `rounding`); () otherwise.

    Too wide is more than `GAP` times `usual`, the `typical` of the other variants, and more than 4
    + 10 / m times the standard deviation that the range of the m values on the larger side suggests
    (the fewer, the less they know it). With fewer than three values, or where both sides are of one
    size, nothing can be said. `benchmarks/statistics.py` measures how often it sees what is there,
    and what is not.
    """
    order = sorted(values, key=lambda seed: values[seed])
    if len(order) < 3:
        return ()
    gaps = [values[high] - values[low] for low, high in itertools.pairwise(order)]
    cut = max(range(len(gaps)), key=lambda place: gaps[place]) + 1
    few, many = sorted((order[:cut], order[cut:]), key=len)
    if len(few) == len(many):
        return ()
    size = len(many)
    inside = max(values[seed] for seed in many) - min(values[seed] for seed in many)
    # the range of so many standard normals (Blom 1958)
    expected = 2 * statistics.NormalDist().inv_cdf((size - 0.375) / (size + 0.25))
    wide = gaps[cut - 1] > max((4 + 10 / size) * inside / expected, GAP * usual, rounding)
    return tuple(sorted(few)) if wide else ()
