"""Seeds that lie apart: training that failed unnoticed, or that ends in one of two optima."""

import itertools
import statistics
from collections.abc import Mapping, Sequence

GAP = 6.0  # spreads of the other variants: how wide the gap must be at least


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
