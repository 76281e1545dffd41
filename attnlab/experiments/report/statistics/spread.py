"""Whether variants have equal variances, and intervals by resampling.

Sources: Smyth (2004), "Linear models and empirical Bayes methods", for the estimate of how far
variances differ beyond what their few degrees of freedom explain; Efron (1987) for BCa intervals;
Hedges (1981) for the correction of d.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from attnlab.experiments.report.statistics.scale import ROUNDING, Interval

RESAMPLES = 9999
# degrees of freedom that the other variants' variances must be worth; below, each variant keeps its
# own
WORTH = 2.0
# degrees of freedom from which a variance counts: three values, also where a block has taken some
# of their two
LEAST = 1.25
_FAINT = 1e-4  # of the mean variance: smallest argument of the logarithm


def differ(variances: Any, freedoms: Any) -> bool:
    """Whether variances [variants] differ too much to be pooled.

    The logarithm of a sample variance with f degrees of freedom has variance psi1(f / 2) by chance.
    What it varies beyond that among variants is psi1(d / 2), where d is how many degrees of freedom
    the other variants' variances are worth for each (Smyth 2004). Below `WORTH` they are not
    pooled: at d = 2, two variances differ typically by a factor of exp(sqrt(2 psi1(1))) = 6 beyond
    chance. Variances of two values (f = 1) take no part: by themselves they know next to nothing.
    """
    import numpy as np
    from scipy import special

    s2, f = np.asarray(variances, float), np.asarray(freedoms, float)
    s2, f = s2[f >= LEAST], f[f >= LEAST]
    if len(s2) < 2 or not s2.any():
        return False
    logs = np.log(np.maximum(s2, _FAINT * s2.mean())) - special.digamma(f / 2) + np.log(f / 2)
    return bool(
        logs.var(ddof=1) - special.polygamma(1, f / 2).mean() > special.polygamma(1, WORTH / 2)
    )


def quantile(freedom: float, p: float) -> float:
    """Student's t at probability `p`; the normal's for infinitely many degrees of freedom."""
    from scipy import special

    return float(special.ndtri(p) if math.isinf(freedom) else special.stdtrit(freedom, p))


def upper_tail(freedom: float, t: float) -> float:
    """P(T > t) of Student's t, or of the normal for infinitely many degrees of freedom."""
    from scipy import special

    return float(special.ndtr(-t) if math.isinf(freedom) else special.stdtr(freedom, -t))


def bootstrap_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """The bias-corrected and accelerated bootstrap interval of the mean, always from the same
    resamples; None if all values agree.

    With fewer than about ten values it is too narrow: it cannot reach beyond the smallest and the
    largest of them.
    """
    if len(values) < 2 or max(values) - min(values) <= ROUNDING * max(map(abs, values)):
        return None
    import numpy as np
    from scipy import stats

    found = stats.bootstrap(
        (list(values),),
        np.mean,
        confidence_level=level,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(0),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def effect_size(difference: float, variance: float, freedom: float) -> float | None:
    """Hedges' g: a difference of means in standard deviations of one run, J(f) difference /
    sqrt(variance); None for f < 2 or no variance.

    J(f) = Gamma(f / 2) / (sqrt(f / 2) Gamma((f - 1) / 2)) takes out the bias of few degrees of
    freedom.
    """
    if freedom < 2 or variance <= 0:
        return None
    if math.isinf(freedom):
        return difference / math.sqrt(variance)
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(
        freedom / 2
    )
    return correction * difference / math.sqrt(variance)


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None
