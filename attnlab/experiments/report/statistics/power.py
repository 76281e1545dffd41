"""Statistical power: the difference that a number of seeds can find, and the seeds that a
difference needs, by the noncentral t distribution.

The test is the two-sided comparison of a variant with the baseline, one of several (Dunnett, by
equal numbers of runs). Both use the observed standard deviation; with few seeds it is a poor
estimate, so take both figures as orders of magnitude.
"""

import bisect
import dataclasses
import math

CHANCE = 0.8
MOST = 2**16  # seeds that `seeds_needed` looks at


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
