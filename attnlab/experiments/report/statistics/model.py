"""The model behind every interval: value = variant + seed + error, by least squares, with one error
variance for all variants, in the unit of each (`Scale.unit`). Which of two forms it has follows from
the design alone, before any value is seen and whatever the number of variants:

  blocked    variants share seeds: the seed is a block, so that every comparison is one within seeds
  pooled     they do not (two samples, or one variant), or too few do to leave a degree of freedom

In a block values are weighted by 1 / unit, so that the seed's part is what quiet variants show of it.
A variant at a bound has a unit too: `Scale.share` counts half a success and half a failure more than
there were, without which its weight would be infinite. The error variance is the sum of all squares
over what this is for a variance of one unit, with Satterthwaite's degrees of freedom; for equal units
this is two-way analysis of variance. So variants of a large unit tell the most of it: each one's
squares in its own unit would let several at a bound, which vary by hardly more than drawing examples
does, hide that the others vary by much more. Those may share an effect of the seed that the quiet
variants do not show, such as one on the logit scale; then fewer squares are independent than seem so.
Where what the variants of a seed do together, in proportion to their units, has a larger mean square
than the rest, degrees of freedom are those of the sum of both (Satterthwaite 1946), if fewer.

What the values may do is take away, never give. Where a weighted sum varies over its own seeds by
more than the other variants do over theirs (F test below `WIDER`), it is judged by that spread too, and the wider
interval holds (`Fit.judging`). So a noisy variant is not passed off as quiet by its neighbours,
and the error rate of variants that spread alike can only fall.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import special

from attnlab.experiments.report.statistics.scale import Scale

WIDER = 0.05  # the p value of a sum's own variance, over the others', below which it counts too

Values = Mapping[str, Mapping[int, float]]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A weighted sum of variant means.

    Attributes:
      value: the sum.
      variance: of it; None if nothing is left to estimate one from.
      freedom: degrees of freedom of that variance, Satterthwaite's where several go into it.
      own: whether it comes from the spread of this sum alone, not from the shared variance.
    """

    value: float
    variance: float | None
    freedom: float
    own: bool = False

    @property
    def error(self) -> float | None:
        """Returns the standard error, or None if the variance is unknown, or 0 because all seeds
        agree.
        """
        return math.sqrt(self.variance) if self.variance else None


@dataclasses.dataclass(frozen=True)
class Fit:
    """The fitted model.

    Attributes:
      names: of the variants that have a value.
      values: [variants, seeds], nan where there is none.
      kind: "pooled" or "blocked".
      means: of the variants, one number each; least squares means if blocked.
      weights: [variants, runs]: means as sums of the runs' values.
      of, seeds: [runs]: places of the variant and of the seed of each.
      variances: [variants]: of one value, without the seed's part; nan where unknown.
      freedom: of the variance that they share.
      block: (variance, its mean square, degrees of freedom, values a seed): of the seed; None if
        not blocked.
      rounding: the largest difference that is a tie.
    """

    names: tuple[str, ...]
    values: Any
    kind: str
    means: Any
    weights: Any
    of: Any
    seeds: Any
    variances: Any
    freedom: float
    block: tuple[float, float, float, float] | None
    rounding: float

    @property
    def runs(self) -> tuple[int, ...]:
        """How many values each variant has."""
        return tuple(int(number) for number in (self.values == self.values).sum(1))

    def judging(self, weights: Mapping[str, float]) -> tuple[Estimate, ...]:
        """Returns a tuple of one or two `Estimate`s by which a weighted sum of the variants' means
        is tested: with the shared variance and, if its own values vary significantly more (F test),
        also with their variance; the last one describes the sum.
        """
        shared, separate = self.estimate(weights), self._separate_estimate(weights)
        if separate is None or not separate.variance or not shared.variance:
            return (shared,)
        ratio, f = separate.variance / shared.variance, separate.freedom
        rest, left = self._variance_of_others(weights) or (math.nan, shared.freedom - f)
        if left < 0.5:  # its own spread is all there is
            return (shared,)
        # Without others to judge by, it is what the rest has added to the shared variance.
        rest = (shared.freedom - f * ratio) / left if math.isnan(rest) else rest
        chance = special.fdtrc(f, left, ratio / rest) if rest > 0 else 0.0
        return (shared, separate) if chance < WIDER else (shared,)

    def _variance_of_others(self, weights: Mapping[str, float]) -> tuple[float, float] | None:
        """Returns the error variance of the variants with weight 0, divided by the shared variance,
        and its degrees of freedom; returns None if seeds are no block, if the weights do not sum to
        0, and if there are fewer than two such variants or seeds.
        """
        other = np.array([not weights.get(name, 0.0) for name in self.names])
        table, variances = self.values[other], self.variances[other]
        table = table[:, ~np.isnan(table).any(0)]
        if self.kind != "blocked" or abs(sum(weights.values())) > 1e-9 or min(table.shape) < 2:
            return None
        left, rows = table - table.mean(1, keepdims=True), table.shape[1] - 1
        left -= np.average(left, axis=0, weights=1 / variances)
        covariance = np.diag(variances) - 1 / (1 / variances).sum()  # of `left` in a seed, by model
        return float((left**2).sum() / np.trace(covariance)) / rows, rows * _freedom(covariance)

    def _separate_estimate(self, weights: Mapping[str, float]) -> Estimate | None:
        """Returns the `Estimate` of the weighted sum with the variance of its own values: of the
        sum over the seeds that all its variants have if blocked, of each variant otherwise, or None
        with fewer than two values.
        """
        value = self.estimate(weights).value
        w = np.array([weights.get(name, 0.0) for name in self.names])
        table, w = self.values[w != 0], w[w != 0]
        if self.kind == "blocked":
            sums = w @ table[:, ~np.isnan(table).any(0)]
            if len(sums) < 2:
                return None
            return Estimate(value, float(sums.var(ddof=1)) / len(sums), len(sums) - 1.0, own=True)
        runs = (~np.isnan(table)).sum(1)
        if not len(w) or runs.min() < 2:
            return None
        variances = w**2 * np.nanvar(table, 1, ddof=1) / runs
        return Estimate(value, *_sum(variances, runs - 1.0), own=True)

    def estimate(self, weights: Mapping[str, float]) -> Estimate:
        """Returns the `Estimate` of the sum over variants of weight times mean: its value, its
        variance (None without a degree of freedom) and degrees of freedom by the fitted model.
        """
        w = np.array([weights.get(name, 0.0) for name in self.names])
        value = math.fsum(w_i * mean for w_i, mean in zip(w, self.means, strict=True) if w_i)
        if self.freedom < 1:
            return Estimate(value, None, 0.0)
        along = w @ self.weights
        error = float((along**2 * self.variances[self.of]).sum())
        if self.block is None:
            return Estimate(value, error, self.freedom)
        variance, square, freedom, size = self.block
        seed = float((np.bincount(self.seeds, along) ** 2).sum())
        if seed < 1e-12 * (along**2).sum() or variance == 0:
            return Estimate(value, error, self.freedom)
        # The seed's variance is (mean square of seeds - mean square of errors) / size: rewritten as
        # a sum of the two independent ones.
        part = seed / size * square
        parts = np.array([part, error + seed * variance - part])
        return Estimate(value, *_sum(parts, np.array([freedom, self.freedom])))

    def alone(self, name: str, mean: float) -> Estimate:
        """Returns the `Estimate` of the variant `name`: `mean`, with the fitted variance of one
        value (error and seed) divided by the number of its own values, degrees of freedom by
        Satterthwaite; without a block, or if it has all seeds, that of `estimate`.
        """
        place = self.names.index(name)
        if self.block is None or self.runs[place] == len(set(self.seeds.tolist())):
            return self.estimate({name: 1.0})
        variance, square, freedom, _ = self.block
        parts = np.array([self.variances[place], variance]) / self.runs[place]
        freedoms = np.array([self.freedom, freedom if square else math.inf])
        return Estimate(mean, *_sum(parts, freedoms))

    def run_variance(self, name: str) -> float | None:
        """Of one run of a variant, without the seed's part, or None if unknown."""
        variance = float(self.variances[self.names.index(name)])
        return None if math.isnan(variance) else variance


def fit(values: Values, scale: Scale) -> Fit:
    """Returns the `Fit`, a model of means and variances, to values[variant][seed], which need not
    be complete: with seeds as a block where the design allows it, otherwise pooled; variants
    without a value are left out.
    """
    names = tuple(name for name, of_seed in values.items() if of_seed)
    order = sorted({seed for of_seed in values.values() for seed in of_seed})
    table = np.array([[values[name].get(seed, math.nan) for seed in order] for name in names])
    table = table.reshape(len(names), len(order))
    of, seeds = np.nonzero(~np.isnan(table))
    y, runs = table[of, seeds], np.bincount(of, minlength=len(names))
    rounding = scale.rounding(y.tolist())
    means = np.array([math.fsum(values[name].values()) / len(values[name]) for name in names])
    units = np.array([scale.unit(mean, n) for mean, n in zip(means, runs, strict=True)])
    squares = np.bincount(of, (y - means[of]) ** 2, minlength=len(names))
    squares = np.where(squares > rounding**2, squares, 0.0) / units
    weights = (of[None] == np.arange(len(names))[:, None]) / runs[:, None]
    unknown, freedom = np.full(len(names), np.nan), float(len(y) - len(names))
    model = Fit(names, table, "pooled", means, weights, of, seeds, unknown, freedom, None, rounding)
    if freedom < 1:
        return model
    counted = scale.count is not None
    if blocked := _blocked(model, y, units, squares, counted):
        return blocked
    return dataclasses.replace(model, variances=_floored(squares.sum() / freedom, counted) * units)


def _blocked(pooled: Fit, y: Any, units: Any, squares: Any, counted: bool) -> Fit | None:
    """Fits value = variant + seed + error to the values `y` by least squares weighted by 1 / unit
    (`units` by variant), and returns the pooled model changed to it, or None if the design is not
    connected or leaves no degree of freedom.
    """
    variants, seeds = pooled.values.shape
    if variants < 2 or seeds < 2:
        return None
    # Seeds in deviations from their mean, so that the coefficients of variants are means over all
    # seeds.
    coded = np.eye(seeds)[:, :-1] - (np.arange(seeds) == seeds - 1)[:, None]
    design = np.hstack([np.eye(variants)[pooled.of], coded[pooled.seeds]])
    between, freedom = seeds - 1, float(len(y) - variants - seeds + 1)
    if freedom < 1 or np.linalg.matrix_rank(design) < variants + seeds - 1:
        return None
    unit = units[pooled.of]
    solution = np.linalg.pinv(design / np.sqrt(unit)[:, None]) / np.sqrt(unit)
    residuals = y - design @ (solution @ y)
    if not (residuals**2).max() > pooled.rounding**2:  # the seeds explain all
        residuals = np.zeros_like(y)
    covariance = np.diag(unit) - design @ (solution * unit)  # of residuals, by model
    together = (pooled.seeds[:, None] == pooled.seeds) * np.outer(unit, unit)
    apart = np.eye(len(y)) - together / np.bincount(pooled.seeds, unit**2)[pooled.seeds]
    whole, rest = float((residuals**2).sum()), float(((apart @ residuals) ** 2).sum())
    freedom, of_rest = _freedom(covariance), _freedom(apart @ covariance @ apart)
    if (whole - rest) / between > rest / of_rest:
        parts = np.array([whole - rest, rest])
        freedom = min(freedom, _sum(parts, np.array([between, of_rest]))[1])
    error = whole / float(np.trace(covariance))
    square = float(squares.sum() - (residuals**2 / unit).sum()) / between
    size = float(((np.array(pooled.runs) - 1) / units).sum()) / between
    complete = np.array(pooled.runs) == seeds  # least squares gives plain means, but for rounding
    means = np.where(complete, pooled.means, (solution @ y)[:variants])
    weights = np.where(complete[:, None], pooled.weights, solution[:variants])
    variance = max(0.0, (square - error) / size)
    return dataclasses.replace(
        pooled,
        kind="blocked",
        means=means,
        weights=weights,
        variances=_floored(error, counted) * units,
        freedom=round(freedom, 9),
        block=(variance, square, float(between), size),
    )


def _freedom(covariance: Any) -> float:
    """Satterthwaite's degrees of freedom of the sum of squares of values with this covariance."""
    return float(covariance.trace() ** 2 / (covariance**2).sum())


def _floored(variance: float, counted: bool) -> float:
    """Returns a variance in units of test sampling, raised to at least 1 where examples are
    counted.

    It keeps its degrees of freedom there: it is 1 plus what the seeds add, and of this sum only the
    estimate varies (Satterthwaite 1946). A statistic that is divided by the larger of the two is never
    larger than Student's t, so the floor takes nothing from an error rate; no other degrees of freedom
    do that for every true variance, since far above the floor the statistic is t.
    """
    return max(1.0, variance) if counted else variance


def _sum(parts: Any, freedoms: Any) -> tuple[float | None, float]:
    """Returns the sum of independent variances and its degrees of freedom by Satterthwaite; (None,
    0) if a variance is nan.
    """
    total = float(parts.sum())
    if math.isnan(total):
        return None, 0.0
    spent = float((parts**2 / np.where(freedoms > 0, freedoms, np.inf)).sum())
    return total, total**2 / spent if spent > 0 else math.inf
