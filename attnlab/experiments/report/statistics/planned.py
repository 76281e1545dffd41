"""What is planned before seeds are trained: how many find a difference, and how often the test
split is looked at as seeds are added.

Power: the difference that a number of seeds can find, and the seeds that a difference needs, by the
noncentral t distribution. The test is the two-sided comparison of a variant with the baseline, one
of several (Dunnett, by equal numbers of runs). Both use the observed standard deviation; with few
seeds it is a poor estimate, so take both figures as orders of magnitude.

Looks: repeated tests with the error rate of one test (Lan and DeMets 1983). Each look spends a part
of alpha that was fixed before: almost nothing early, and nearly all of it at the last look (O'Brien
and Fleming 1979). Boundaries come from the joint distribution of the looks, computed step by step
(Armitage, McPherson and Rowe 1969), as for known variances; with estimated ones the same levels are
used on the p value of each look.
"""

import bisect
import dataclasses
import functools
import math
from typing import Any

CHANCE = 0.8
MOST = 2**16  # seeds that `seeds_needed` looks at
_GRID = 801


@dataclasses.dataclass(frozen=True)
class Dunnett:
    """The two-sided comparison of several variants with a baseline, for numbers of seeds.

    Attributes:
      deviation: standard deviation of one run.
      per_seed: degrees of freedom that every seed after the first adds: the number of variants if
        they share one variance, one less if they share the seeds too.
      comparisons: how many variants are compared with the baseline.
      alpha: the error rate of all comparisons together.
    """

    deviation: float
    per_seed: float
    comparisons: int
    alpha: float = 0.05

    def chance_to_find(self, difference: float, seeds: int) -> float:
        """Returns the probability (power) that the test finds a true `difference` of two means with
        `seeds` runs of each variant.
        """
        from scipy import special, stats

        from attnlab.experiments.report.statistics.simultaneous import Joint

        freedom = self.per_seed * (seeds - 1)
        joint = Joint((math.sqrt(0.5),) * self.comparisons, 0, freedom)
        critical = joint.critical(self.alpha, freedom)
        shift = abs(difference) / (self.deviation * math.sqrt(2 / seeds))
        if shift > 37:  # beyond what the noncentral t is computed for
            return 1.0
        tails = stats.nct.sf(critical, freedom, shift), stats.nct.cdf(-critical, freedom, shift)
        power = float(tails[0] + tails[1])
        return power if math.isfinite(power) else float(special.ndtr(shift - critical))

    def detectable(self, seeds: int) -> float | None:
        """Returns the smallest true difference of two means that `seeds` seeds find with
        probability `CHANCE`, or None for fewer than two seeds.
        """
        from scipy import optimize

        if seeds < 2:
            return None

        def above(difference: float) -> float:
            return self.chance_to_find(difference, seeds) - CHANCE

        high = self.deviation
        while above(high) < 0:
            high *= 2
        return float(optimize.brentq(above, 0.0, high, rtol=1e-9))

    def seeds_needed(self, difference: float) -> int | None:
        """Returns the smallest number of seeds (at least 2) that finds a true `difference` of two
        means with probability `CHANCE`, or None if more than `MOST` are needed.
        """

        def is_enough(seeds: int) -> bool:
            return self.chance_to_find(difference, seeds) >= CHANCE

        needed = bisect.bisect_left(range(MOST + 1), True, lo=2, key=is_enough)
        return needed if needed <= MOST else None


def _spending(share: float, alpha: float) -> float:
    """Returns how much of alpha is spent after this share of all planned looks (O'Brien-Fleming)."""
    from scipy import special

    # alpha / 2 to either side
    return float(4 * special.ndtr(special.ndtri(alpha / 4) / math.sqrt(share)))


def spent(look: int, looks: int, alpha: float = 0.05) -> float:
    """Returns the two-sided level of look number `look` of `looks` equally spaced ones, so that
    together they err with probability alpha, or raises ValueError for a look not planned.

    Args:
      look: which, from 1; the first has as many seeds as each later one adds.
      looks: how many are planned. More looks than planned have no level.
      alpha: of all looks together.

    Raises:
      ValueError: a look that was not planned.
    """
    if not 1 <= look <= looks:
        raise ValueError(f"look {look} of {looks}: levels exist for the looks that were planned")
    return _levels(looks, alpha)[look - 1]


@functools.lru_cache(maxsize=32)
def _levels(looks: int, alpha: float) -> tuple[float, ...]:
    """Computes the two-sided significance level of each of `looks` equally spaced looks, so that
    together they err with probability alpha (O'Brien-Fleming spending).
    """
    import numpy as np
    from scipy import optimize, special

    levels, before = list[float](), 0.0
    # of the sum of as many unit steps as looks were taken, if none has stopped it
    grid, density = np.zeros(1), np.ones(1)
    for look in range(1, looks + 1):
        budget = _spending(look / looks, alpha)
        seen = (grid, density, look, budget - before)
        bound = float(optimize.brentq(_excess, 0.0, 40.0, args=seen, xtol=1e-12))
        levels.append(float(2 * special.ndtr(-bound)))
        grid, density = _onward(grid, density, bound * math.sqrt(look))
        before = budget
    return tuple(levels)


def _excess(bound: float, grid: Any, density: Any, look: int, budget: float) -> float:
    """Returns by how much the probability to cross +-`bound` first at this look exceeds `budget`,
    from the density of the sum before its step.
    """
    from scipy import special

    edge = bound * math.sqrt(look)
    return float(density @ (special.ndtr(grid - edge) + special.ndtr(-edge - grid))) - budget


def _onward(grid: Any, density: Any, edge: float) -> tuple[Any, Any]:
    """Returns the density of the sum after one more standard normal step, restricted to [-edge,
    edge], as grid nodes and densities times Simpson's weights, from those before the step.
    """
    import numpy as np

    edge = min(edge, 40.0)
    nodes = np.linspace(-edge, edge, _GRID)
    simpson = np.where(np.arange(_GRID) % 2, 4.0, 2.0)
    simpson[[0, -1]] = 1.0
    kernel = np.exp(-((nodes[:, None] - grid) ** 2) / 2) / math.sqrt(2 * math.pi)
    return nodes, kernel @ density * simpson * (nodes[1] - nodes[0]) / 3
