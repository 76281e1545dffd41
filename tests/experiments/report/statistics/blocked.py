"""Comparisons within seeds worked out another way: two-way analysis of variance by indicators, and
the chance of the largest of several t values by scipy's multivariate t.
"""

from typing import Any

import numpy as np
from scipy import optimize, stats


def by_seed(values: Any, shared: bool = True) -> dict[str, dict[int, float]]:
    """Values [variants][seeds] of "v0", ... by seed, nan for a missing one; each variant has seeds of
    its own unless they are shared.
    """
    rows = {}
    for place, row in enumerate(values):
        numbered = enumerate(map(float, row), 0 if shared else 100 * place)
        rows[f"v{place}"] = {seed: value for seed, value in numbered if value == value}
    return rows


def dunnett(values: Any) -> tuple[Any, Any, float]:
    """Differences of [variants, seeds] to the first, their p, and half of the interval of each."""
    values = np.asarray(values, float)
    variants, seeds = values.shape
    rows = [
        [float(v == one) for one in range(variants)] + [float(s == one) for one in range(1, seeds)]
        for v in range(variants)
        for s in range(seeds)
    ]
    solution, residual, _, _ = np.linalg.lstsq(np.array(rows), values.ravel(), rcond=None)
    freedom = (variants - 1) * (seeds - 1)
    error = np.sqrt(2 * residual[0] / freedom / seeds)
    shape = np.full((variants - 1, variants - 1), 0.5) + 0.5 * np.eye(variants - 1)

    def beyond(size: float) -> float:
        if variants == 2:
            return float(2 * stats.t.sf(size, freedom))
        box = np.full(variants - 1, size)
        found = stats.multivariate_t(shape=shape, df=freedom, seed=0)
        return float(1 - found.cdf(box, lower_limit=-box, maxpts=200_000, random_state=0))

    differences = solution[1:variants] - solution[0]
    critical = optimize.brentq(lambda size: beyond(size) - 0.05, 1.0, 30.0, xtol=1e-4)
    return differences, np.array([beyond(abs(t)) for t in differences / error]), critical * error
