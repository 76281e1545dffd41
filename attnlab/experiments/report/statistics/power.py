"""Statistical power: the difference that a number of seeds can find, and the seeds that a
difference needs, by the noncentral t distribution.

The test is the two-sided comparison of a variant with the baseline, one of several (Dunnett, by
equal numbers of runs). Both use the observed standard deviation; with few seeds it is a poor
estimate, so take both figures as orders of magnitude.
"""

import bisect
import math

CHANCE = 0.8
MOST = 2**16  # seeds that `seeds_needed` looks at


def chance_to_find(
    difference: float,
    seeds: int,
    deviation: float,
    per_seed: float,
    comparisons: int,
    alpha: float = 0.05,
) -> float:
    """Returns the probability (power) that the two-sided test of `comparisons` variants against a
    baseline finds a true `difference` of two means with `seeds` runs each, of which each after the
    first adds `per_seed` degrees of freedom.

    Args:
      difference: of two means.
      seeds: runs of each variant.
      deviation: standard deviation of one run.
      per_seed: degrees of freedom that every seed after the first adds: the number of variants if
        they share one variance, one less if they share the seeds too.
      comparisons: how many variants are compared with the baseline.
      alpha: the error rate of all comparisons together.
    """
    from scipy import special, stats

    from attnlab.experiments.report.statistics.simultaneous import Joint

    freedom = per_seed * (seeds - 1)
    joint = Joint((math.sqrt(0.5),) * comparisons, 0, freedom)
    critical = joint.critical(alpha, freedom)
    shift = abs(difference) / (deviation * math.sqrt(2 / seeds))
    if shift > 37:  # beyond what the noncentral t is computed for
        return 1.0
    power = float(stats.nct.sf(critical, freedom, shift) + stats.nct.cdf(-critical, freedom, shift))
    return power if math.isfinite(power) else float(special.ndtr(shift - critical))


def detectable(
    seeds: int,
    deviation: float,
    per_seed: float,
    comparisons: int,
    alpha: float = 0.05,
    chance: float = CHANCE,
) -> float | None:
    """Returns the smallest true difference of two means that `seeds` seeds find with probability
    `chance` (see `chance_to_find`; `per_seed` is degrees of freedom), or None for fewer than two
    seeds. Arguments as in `chance_to_find`.
    """
    from scipy import optimize

    if seeds < 2:
        return None

    def lacking(difference: float) -> float:
        return chance_to_find(difference, seeds, deviation, per_seed, comparisons, alpha) - chance

    high = deviation
    while lacking(high) < 0:
        high *= 2
    return float(optimize.brentq(lacking, 0.0, high, rtol=1e-9))


def seeds_needed(
    difference: float,
    deviation: float,
    per_seed: float,
    comparisons: int,
    alpha: float = 0.05,
    chance: float = CHANCE,
) -> int | None:
    """Returns the smallest number of seeds (at least 2) that finds a true difference of two means
    with probability `chance` (see `chance_to_find`; `per_seed` is degrees of freedom), or None if
    more than `MOST` are needed.
    """

    def enough(seeds: int) -> bool:
        return chance_to_find(difference, seeds, deviation, per_seed, comparisons, alpha) >= chance

    needed = bisect.bisect_left(range(MOST + 1), True, lo=2, key=enough)
    return needed if needed <= MOST else None
