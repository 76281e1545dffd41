"""Many comparisons at once: the chance that the largest of several related statistics is as large
as one that was seen.

The same distribution gives the adjusted p value and, inverted, the factor of the simultaneous
interval, so that the two agree always.

  against   all variants with a baseline (Dunnett 1955): differences share the baseline's mean
  pairs     all pairs (Tukey 1953; Kramer 1956 for unequal numbers of runs, where it is slightly conservative)

Where one variance is pooled, the statistics share it and are multivariate t. Where variances are
separate, each statistic has its own degrees of freedom: it is turned into the normal deviate of its
own p value, and these are treated as multivariate normal. (To give each the quantile of a
multivariate t with its own degrees of freedom errs too often with three seeds: it takes them to
share a denominator.)
"""

import collections
import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import optimize, special

from attnlab.experiments.report.statistics.spread import quantile, upper_tail

_NODES = 80


@dataclasses.dataclass(frozen=True)
class Joint:
    """The distribution of the largest of several statistics if nothing differs.

    Attributes:
      loadings: of comparisons with a baseline, the correlation of each with the baseline's mean; ()
        for all pairs.
      groups: of how many variants all pairs are; 0 for comparisons with a baseline.
      freedom: of the variance they share; None if each has its own.
    """

    loadings: tuple[float, ...] = ()
    groups: int = 0
    freedom: float | None = None

    def p(self, t: float, freedom: float) -> float:
        """Returns the p value of a statistic t (two-sided, `freedom` degrees of freedom), adjusted
        for all comparisons.
        """
        alone = 2 * upper_tail(freedom, abs(t))
        if self._single:
            return alone
        size = abs(t) if self.freedom is not None else -quantile(math.inf, max(alone, 1e-300) / 2)
        return min(1.0, max(alone, 1 - self._below(size)))

    def critical(self, alpha: float, freedom: float) -> float:
        """Returns the critical value: the statistic with `freedom` degrees of freedom whose
        adjusted p value is `alpha`.
        """
        if self._single:
            return quantile(freedom, 1 - alpha / 2)
        size = _critical(self, alpha)
        return (
            size if self.freedom is not None else quantile(freedom, 1 - upper_tail(math.inf, size))
        )

    @property
    def _single(self) -> bool:
        return len(self.loadings) == 1 or self.groups == 2

    def _below(self, size: float) -> float:
        """Returns the probability that every statistic is below `size` in absolute value, if
        nothing differs, by integrating over the shared variance.
        """
        shared = math.inf if self.freedom is None else self.freedom
        scales, weights = (np.ones(1), np.ones(1)) if math.isinf(shared) else _chi(shared)
        sizes = size * scales
        below = (
            _range(self.groups, sizes) if self.groups else _around_baseline(self.loadings, sizes)
        )
        return float(weights @ below)


@functools.lru_cache(maxsize=256)
def _critical(joint: Joint, alpha: float) -> float:
    """Returns the size that the largest statistic exceeds with probability `alpha`, by root
    finding.
    """
    high = 4.0
    while 1 - joint._below(high) > alpha:
        high *= 2
    return float(
        optimize.brentq(lambda size: 1 - joint._below(size) - alpha, 0.0, high, xtol=1e-10)
    )


@functools.lru_cache(maxsize=8)
def _nodes(count: int) -> tuple[Any, Any]:
    return np.polynomial.legendre.leggauss(count)


def _chi(freedom: float) -> tuple[Any, Any]:
    """Returns nodes and weights (sum 1) to integrate over s = sqrt(chi2 / freedom), by
    Gauss-Legendre quadrature.
    """
    low, high = (
        math.sqrt(2 * special.gammainccinv(freedom / 2, p) / freedom) for p in (1 - 1e-12, 1e-12)
    )
    x, w = _nodes(_NODES)
    s = low + (high - low) * (x + 1) / 2
    half = freedom / 2
    density = np.exp(
        half * math.log(half)
        - math.lgamma(half)
        + math.log(2)
        + (freedom - 1) * np.log(np.maximum(s, 1e-300))
        - half * s**2
    )
    weights = w * density
    return s, weights / weights.sum()


def _around_baseline(loadings: tuple[float, ...], sizes: Any) -> Any:
    """Returns P(all |l_i z + sqrt(1 - l_i^2) e_i| < size) for each of `sizes`, z and all e_i
    independent standard normal, l_i the loadings. Where l_i is nearly 1 the integrand falls from 1
    to 0 at z = size, so nodes are dense there.
    """
    x, w = _nodes(_NODES)
    size = np.asarray(sizes)[:, None]
    cut = np.minimum(size, 8.5)
    z = np.hstack([cut * (x + 1), 2 * cut + (8.5 - cut) * (x + 1)]) / 2
    inside = np.hstack([cut * w, (8.5 - cut) * w]) * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    for loading, times in collections.Counter(loadings).items():
        rest = math.sqrt(max(1 - loading**2, 1e-6))
        p = special.ndtr((size - loading * z) / rest) - special.ndtr((-size - loading * z) / rest)
        inside *= p**times
    return inside.sum(1)


def _range(groups: int, sizes: Any) -> Any:
    """Returns P(the range of `groups` independent standard normals < sqrt(2) size) for each of
    `sizes`.
    """
    x, w = _nodes(2 * _NODES)
    z = 8.5 * x
    weights = w * np.exp(-(z**2) / 2)
    span = special.ndtr(z) - special.ndtr(z - math.sqrt(2) * np.asarray(sizes)[:, None])
    return groups * span ** (groups - 1) @ weights / weights.sum()
