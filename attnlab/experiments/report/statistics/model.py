"""The model behind every interval: value = variant + seed + error, by least squares; with the seed
effect only if it explains enough.

  pooled     all variants spread alike: one error variance, from all of them. The rule.
  separate   variances differ by more than chance explains (`spread.differ`): each variant has its own (Welch), no seed effect
  blocked    pooled, and the seed explains so much (F test below `BLOCK`) that its degrees of freedom are well spent

Without a seed effect intervals of differences are wider, never narrower, which is safe. A seed
effect by mistake makes them too narrow, so `BLOCK` is strict.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from attnlab.experiments.report.statistics.scale import Scale
from attnlab.experiments.report.statistics.spread import differ

BLOCK = 0.01  # the p value of the seeds below which they are a block

Values = Mapping[str, Mapping[int, float]]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A weighted sum of variant means.

    Attributes:
      value: the sum.
      variance: of it; None if nothing is left to estimate one from.
      freedom: degrees of freedom of that variance. Where several go into it Satterthwaite's; of
        separate variances, the geometric mean of that and the least of theirs.
    """

    value: float
    variance: float | None
    freedom: float

    @property
    def error(self) -> float | None:
        """The standard error; None if there is none, or where it is 0 because all seeds
        agree.
        """
        return math.sqrt(self.variance) if self.variance else None


@dataclasses.dataclass(frozen=True)
class Fit:
    """The fitted model.

    Attributes:
      names: of the variants that have a value.
      runs: values of each.
      kind: "pooled", "separate" or "blocked".
      means: of the variants, one number each; least squares means if blocked.
      weights: [variants, values]: means as sums of values.
      of: [values]: place of the variant of each value.
      variances: [variants]: of one value, without the seed's part; nan where unknown.
      freedoms: [variants]: of that, if separate.
      freedom: of all, if pooled or blocked.
      block: (variance, its mean square, degrees of freedom, values a seed): of the seed; None if
        not blocked.
      seeds: [values]: place of the seed of each value.
      rounding: the largest difference that is a tie.
    """

    names: tuple[str, ...]
    runs: tuple[int, ...]
    kind: str
    means: Any
    weights: Any
    of: Any
    variances: Any
    freedoms: Any
    freedom: float
    block: tuple[float, float, float, float] | None
    seeds: Any
    rounding: float

    def estimate(self, weights: Mapping[str, float]) -> Estimate:
        """The sum over variants of weight times mean."""
        import numpy as np

        w = np.array([weights.get(name, 0.0) for name in self.names])
        value = math.fsum(one * mean for one, mean in zip(w, self.means, strict=True) if one)
        if self.kind == "separate":
            parts = np.array(
                [
                    one**2 * s2 / n
                    for one, s2, n in zip(w, self.variances, self.runs, strict=True)
                    if one
                ]
            )
            freedoms = np.array([f for one, f in zip(w, self.freedoms, strict=True) if one])
            variance, freedom = _sum(parts, freedoms)
            # Satterthwaite's figure is too large where the noisiest variant looks quiet by chance:
            # half way to the least that it can be.
            return Estimate(
                value, variance, math.sqrt(freedom * freedoms.min()) if variance else freedom
            )
        if self.freedom < 1:
            return Estimate(value, None, 0.0)
        along = w @ self.weights
        error = float((along**2 * self.variances[self.of]).sum())
        if self.block is None:
            return Estimate(value, error, self.freedom)
        variance, square, freedom, size = self.block
        seed = float((np.bincount(self.seeds, along) ** 2).sum())
        if seed * variance < 1e-12 * error or variance == 0:
            return Estimate(value, error, self.freedom)
        # The seed's variance is (mean square of seeds - mean square of errors) / size: rewritten as
        # a sum of the two independent ones.
        one = seed / size * square
        return Estimate(
            value,
            *_sum(
                np.array([one, error + seed * variance - one]), np.array([freedom, self.freedom])
            ),
        )

    def alone(self, name: str, mean: float) -> Estimate:
        """The `mean` of the values that a variant has, whatever the others have on the seeds
        that it lacks.
        """
        import numpy as np

        place = self.names.index(name)
        if self.block is None or self.runs[place] == len(set(self.seeds.tolist())):
            return self.estimate({name: 1.0})
        variance, square, freedom, _ = self.block
        parts = np.array([self.variances[place], variance]) / self.runs[place]
        return Estimate(
            mean, *_sum(parts, np.array([self.freedom, freedom if square else math.inf]))
        )

    def run_variance(self, name: str) -> float | None:
        """Of one run of a variant, without the seed's part; None if unknown."""
        variance = float(self.variances[self.names.index(name)])
        return None if math.isnan(variance) else variance


def fit(values: Values, scale: Scale) -> Fit:
    """The model for values[variant][seed], which need not be complete; variants without any value
    are left out.
    """
    import numpy as np

    names = tuple(name for name, one in values.items() if one)
    rows = [
        (place, seed, value)
        for place, name in enumerate(names)
        for seed, value in values[name].items()
    ]
    order = {seed: place for place, seed in enumerate(sorted({seed for _, seed, _ in rows}))}
    of, seeds = (
        np.array([row[0] for row in rows], int),
        np.array([order[row[1]] for row in rows], int),
    )
    y = np.array([row[2] for row in rows], float)
    rounding = scale.rounding(y.tolist())
    runs = np.bincount(of, minlength=len(names))
    groups = [y[of == place] for place in range(len(names))]
    means = np.array([math.fsum(one) / len(one) for one in groups])
    units = np.array([scale.unit(mean, n) for mean, n in zip(means, runs, strict=True)])
    squares = (
        np.array(
            [
                _above(((one - mean) ** 2).sum(), rounding)
                for one, mean in zip(groups, means, strict=True)
            ]
        )
        / units
    )
    freedoms = (runs - 1).astype(float)
    own = np.divide(squares, freedoms, out=np.full(len(names), np.nan), where=freedoms > 0)
    weights = (of[None] == np.arange(len(names))[:, None]) / runs[:, None]
    found = Fit(names, tuple(map(int, runs)), "pooled", means, weights, of, np.full(len(names), np.nan), freedoms,
                float(freedoms.sum()), None, seeds, rounding)  # fmt: skip
    if found.freedom < 1:
        return found
    counted = scale.count is not None
    if differ(np.maximum(own, 1.0) if counted else own, freedoms):
        return dataclasses.replace(
            found, kind="separate", variances=(np.maximum(own, 1.0) if counted else own) * units
        )
    blocked = _blocked(found, y, units, squares, counted)
    if blocked is not None:
        return blocked
    over, sure = _floored(
        np.array([squares.sum() / found.freedom]), np.array([found.freedom]), counted
    )
    return dataclasses.replace(found, variances=over[0] * units, freedom=float(sure[0]))


def _blocked(found: Fit, y: Any, units: Any, squares: Any, counted: bool) -> Fit | None:
    """The model with the seeds as a block; None if the seeds explain too little, or if the values
    do not connect variants and seeds.
    """
    import numpy as np
    from scipy import special

    variants, seeds = len(found.names), int(found.seeds.max()) + 1
    if variants < 2 or seeds < 2:
        return None
    # Seeds in deviations from their mean, so that the coefficients of variants are means over all
    # seeds.
    coded = np.eye(seeds)[:, :-1] - (np.arange(seeds) == seeds - 1)[:, None]
    design = np.hstack([np.eye(variants)[found.of], coded[found.seeds]])
    between, freedom = seeds - 1, len(y) - variants - seeds + 1
    if freedom < 1 or np.linalg.matrix_rank(design) < variants + seeds - 1:
        return None
    solution = np.linalg.pinv(design)
    residuals = y - design @ (solution @ y)
    within = np.bincount(found.of, residuals**2, minlength=variants) / units
    error = within.sum() / freedom
    square = (squares.sum() - within.sum()) / between
    if (
        not (residuals**2).max() > found.rounding**2
    ):  # the seeds explain all: nothing is left to judge by
        return None
    if (
        special.fdtrc(between, freedom, max(square, 0.0) / (max(error, 1.0) if counted else error))
        >= BLOCK
    ):
        return None
    hat = np.einsum("ij,ji->i", design, solution)
    own = np.bincount(found.of, 1 - hat, minlength=variants)
    if variants > 2 and differ(
        np.divide(within, own, out=np.zeros(variants), where=own > 0.1), own
    ):
        return None
    over, sure = _floored(np.array([error]), np.array([float(freedom)]), counted)
    size = (len(y) - variants) / between
    unit = float(np.average(units))
    variance = max(0.0, (square - error) / size) * unit
    return dataclasses.replace(
        found, kind="blocked", means=(solution @ y)[:variants], weights=solution[:variants], variances=over[0] * units,
        freedom=float(sure[0]), block=(variance, square * unit, float(between), size),
    )  # fmt: skip


def _floored(variances: Any, freedoms: Any, counted: bool) -> tuple[Any, Any]:
    """Pooled variances in units of test sampling, at least 1 where examples are counted: then the
    variance is known, not estimated.
    """
    import numpy as np

    if not counted:
        return variances, freedoms
    low = ~(variances > 1.0)
    return np.where(low, 1.0, variances), np.where(low, np.inf, freedoms)


def _above(square: float, rounding: float) -> float:
    """A sum of squares; 0 where it is rounding."""
    return float(square) if square > rounding**2 else 0.0


def _sum(parts: Any, freedoms: Any) -> tuple[float | None, float]:
    """A sum of independent variances, and Satterthwaite's degrees of freedom."""
    import numpy as np

    total = float(parts.sum())
    if math.isnan(total):
        return None, 0.0
    spent = float((parts**2 / np.where(freedoms > 0, freedoms, np.inf)).sum())
    return total, total**2 / spent if spent > 0 else math.inf
