"""Are the report's intervals and tests as good as they say? Simulated experiments with known
answers, the report's method beside tests of each variant by itself.

    python -m benchmarks.statistics                 # the table of docs/report.md, on one core
    python -m benchmarks.statistics --runs=500      # a quick look

Experiments of 2, 5 and 12 variants with 2, 3, 5 and 8 seeds. Errors are
  normal    independent and normal
  half      shares of 500 test examples near 0.5: a normal error of 0.3 on the logit scale, and binomial sampling of the examples
  ceiling   the same near 0.98
  bounds    the same near 0.5 and near 0.9995 by turns, whose unit is 500 times as small; the baseline is near 0.5
  turned    the same, but the baseline is near 0.9995
  skewed    lognormal with sigma 0.5, centred (skewness 1.75)
  failing   normal, but one seed in ten ends 10 standard deviations lower
spreads are equal, or every second variant has ten times the standard deviation (near the ceiling:
1.5 on the logit scale against 0.1), and in the rows with a seed effect an error of the size of a
run's own is shared by all variants of a seed.

For each, over all experiments, in percent: how often the 95 % interval of a mean, and that of a
single difference to the baseline, holds the truth; how often any difference, adjusted for all, is
declared to be other than it is, and the largest upper 95 % bound of that (Clopper and Pearson); and how
often a variant that differs by 1, 2 and 3 standard deviations of a run (root mean square of the
two) is declared so, after adjustment for all comparisons. A range is over the numbers of variants;
power stands for 2, 5 and 12 of them. In brackets what needs no model: Student's t of each variant,
paired t tests, Holm. The last columns: how often seeds are flagged as lying apart in an experiment
where one did, and where none did.

The simulation has a fast path of its own, for complete experiments; on some draws of every case it
is held against the package's.
"""

import argparse
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.statistics.model import WIDER
from attnlab.experiments.report.statistics.scale import Scale
from attnlab.experiments.report.statistics.simultaneous import Joint
from attnlab.experiments.report.statistics.spread import apart, spread, typical

EXAMPLES = 500
EFFECTS = (1, 2, 3)
VARIANTS, SEEDS = (2, 5, 12), (2, 3, 5, 8)
# The share of the first variant and of every other one, and of those between
SHARES = {
    "half": (0.5, 0.5),
    "ceiling": (0.98, 0.98),
    "bounds": (0.5, 0.9995),
    "turned": (0.9995, 0.5),
}
ERRORS = ("normal", "ceiling", "skewed", "failing", "half", "bounds", "turned")
ROUGH = 0.001  # how far the rough quadrature of adjusted p values is off where they are near 0.05
CHECKED = 6  # draws of every case that go through the package as well


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of experiment."""

    errors: str
    unequal: bool
    shared: bool
    seeds: int
    variants: int

    @property
    def spreads(self) -> Any:
        """The standard deviation of a run of each variant; near the ceiling on the logit scale."""
        small, large = (0.1, 1.5) if self.errors in SHARES else (1.0, 10.0)
        odd = np.arange(self.variants) % 2 == 1
        return (
            np.where(odd, large, small)
            if self.unequal
            else np.full(self.variants, 0.3 if self.errors in SHARES else 1.0)
        )

    @property
    def scale(self) -> Scale:
        return Scale(0, 1, EXAMPLES) if self.errors in SHARES else Scale()

    @property
    def levels(self) -> Any:
        """The means of variants without an effect."""
        first, second = SHARES.get(self.errors, (0.0, 0.0))
        return np.where(np.arange(self.variants) % 2 == 1, second, first)


@dataclasses.dataclass(frozen=True)
class Tested:
    """What a method says of [runs, variants]: intervals of means, of differences to the first
    variant, and differences declared real.
    """

    mean: Any
    difference: Any
    declared: Any


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=10_000,
        help="experiments of each kind, for power; for errors four times as many",
    )
    parser.add_argument("--errors", choices=ERRORS, action="append", help="only these")
    chosen = parser.parse_args()
    np.seterr(divide="ignore", invalid="ignore")
    head = ["errors", "spreads", "seed effect", "seeds", "mean", "difference", "family error"]
    head += ["at most", *(f"power, d = {effect}" for effect in EFFECTS), "flagged", "false flags"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for errors, unequal, shared, seeds in itertools.product(
        chosen.errors or ERRORS, (False, True), (False, True), SEEDS
    ):
        if unequal and errors in ("half", "bounds", "turned"):
            continue
        cases = [
            measure(Case(errors, unequal, shared, seeds, variants), chosen.runs)
            for variants in VARIANTS
        ]
        kind = errors, "unequal" if unequal else "equal", "yes" if shared else "no", str(seeds)
        print("| " + " | ".join((*kind, *cells(cases))) + " |", flush=True)


def cells(cases: Sequence[dict[Any, Any]]) -> list[str]:
    """A row: ranges over the numbers of variants, power for each of them."""
    out = [
        f"{spanned(cases, 'new', key)} ({spanned(cases, 'old', key)})"
        for key in ("mean", "difference", "error")
    ]
    out.append(f"{100 * max(case['new', 'most'] for case in cases):.1f}")
    for effect in EFFECTS:
        new, old = (
            ", ".join(f"{100 * case[method, effect]:.0f}" for case in cases)
            for method in ("new", "old")
        )
        out.append(f"{new} ({old})")
    return [*out, *(spanned(cases, "flag", key) for key in (True, False))]


def spanned(cases: Sequence[dict[Any, Any]], method: str, key: Any) -> str:
    """The least and the most in percent; "-" where there was nothing to count."""
    values = [100 * case[method, key] for case in cases if not math.isnan(case[method, key])]
    if not values:
        return "-"
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low}-{high}"


def measure(case: Case, runs: int) -> dict[Any, Any]:
    """All figures of one kind of experiment."""
    rng = np.random.default_rng(
        [7, case.seeds, case.variants, ERRORS.index(case.errors), case.unequal, case.shared]
    )
    values, truth, deviation, failed = draw(case, 4 * runs, rng, 0.0)
    out: dict[Any, Any] = {}
    check(case, values)
    null = case.levels[1:] - case.levels[0]
    for name, method in (("new", modelled), ("old", paired)):
        tested = method(values, case.scale, null)
        out[name, "mean"] = inside(tested.mean, truth)
        out[name, "difference"] = inside(tested.difference, truth[1:] - truth[:1])
        errors = int(tested.declared.any(-1).sum())
        out[name, "error"] = errors / len(values)
        out[name, "most"] = special.betaincinv(errors + 1, len(values) - errors, 0.95)
    flags = np.array([flagged(experiment) for experiment in values[:1000]])
    bad = failed[: len(flags)]
    out["flag", True] = float(flags[bad].mean()) if bad.any() else math.nan
    out["flag", False] = float(flags[~bad].mean()) if (~bad).any() else math.nan
    for effect in EFFECTS:
        for _ in range(6):  # near the ceiling the deviation depends on the mean
            size = effect * deviation
            deviation = draw(case, 1, rng, size)[2]
        moved = draw(case, runs, rng, size)[0]
        for name, method in (("new", modelled), ("old", paired)):
            out[name, effect] = float(method(moved, case.scale, null).declared[:, 0].mean())
    return out


def inside(interval: Any, truth: Any) -> float:
    """How often an interval [2, runs, variants] holds the truth."""
    return float(((interval[0] <= truth) & (truth <= interval[1])).mean())


def flagged(values: Any) -> bool:
    """Whether any variant of one experiment is flagged."""
    spreads = [spread(scores) for scores in values.tolist()]
    others = (spreads[:place] + spreads[place + 1 :] for place in range(len(spreads)))
    return any(
        apart(dict(enumerate(scores)), typical(rest), 0.0)
        for scores, rest in zip(values.tolist(), others, strict=True)
    )


def draw(
    case: Case, runs: int, rng: np.random.Generator, effect: float
) -> tuple[Any, Any, float, Any]:
    """Values [runs, variants, seeds], true means, the standard deviation of a run, and which
    experiments had a failing seed.

    The second variant is worse by `effect`.
    """
    shape, spreads = (runs, case.variants, case.seeds), case.spreads
    moved = np.where(np.arange(case.variants) == 1, effect, 0.0)
    none = np.zeros(runs, bool)
    shared = rng.normal(size=(runs, 1, case.seeds)) * (spreads[0] if case.shared else 0.0)
    if case.errors in SHARES:
        return *_near_ceiling(case, shared, rng, moved), none
    mean, failed = 0.0, none  # type: float, Any
    if case.errors == "skewed":
        errors = (np.exp(0.5 * rng.normal(size=shape)) - math.exp(0.125)) / math.sqrt(
            math.exp(0.25) * (math.exp(0.25) - 1)
        )
    else:
        errors = rng.normal(size=shape)
    if case.errors == "failing":
        lost = rng.random(shape) < 0.1
        errors, mean, failed = errors - 10.0 * lost, -1.0, lost.any((1, 2))
    values = errors * spreads[:, None] + shared - moved[:, None]
    deviation = math.sqrt(
        (spreads[0] ** 2 + spreads[1] ** 2) / 2 + (spreads[0] ** 2 if case.shared else 0.0)
    )
    return values, mean * spreads - moved, deviation, failed


def _near_ceiling(
    case: Case, shared: Any, rng: np.random.Generator, moved: Any
) -> tuple[Any, Any, float]:
    """Shares of `EXAMPLES` whose means are the case's levels less `moved`, whatever the spread on the
    logit scale.
    """
    spreads = case.spreads
    total = np.sqrt(spreads**2 + (spreads[0] ** 2 if case.shared else 0.0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    centres, variances = [], []
    for deviation, target in zip(total, case.levels - moved, strict=True):
        low, high = -20.0, 30.0
        for _ in range(60):
            centre = (low + high) / 2
            low, high = (
                (centre, high)
                if special.expit(centre + deviation * nodes) @ weights < target
                else (low, centre)
            )
        p = special.expit(centre + deviation * nodes)
        centres.append(centre)
        variances.append(p**2 @ weights - target**2 + (p * (1 - p)) @ weights / EXAMPLES)
    shape = (shared.shape[0], case.variants, case.seeds)
    p = special.expit(
        np.array(centres)[:, None] + spreads[:, None] * rng.normal(size=shape) + shared
    )
    return (
        rng.binomial(EXAMPLES, p) / EXAMPLES,
        case.levels - moved,
        math.sqrt(sum(variances[:2]) / 2),
    )


def paired(values: Any, scale: Scale, null: Any = 0.0) -> Tested:
    """What needs no model: t intervals of each variant, paired t tests, Holm; a difference is declared
    where it is not `null`. Where all values agree it has neither interval nor p.
    """
    n, others = values.shape[-1], values.shape[1] - 1
    factor = special.stdtrit(n - 1, 0.975)

    def interval(x: Any, null: Any) -> tuple[Any, Any]:
        mean, half = x.mean(-1), factor * x.std(-1, ddof=1) / math.sqrt(n)
        half = np.where(half > 1e-12, half, -np.inf)  # none holds nothing
        return np.stack([mean - half, mean + half]), (mean - null) * factor / half

    means, differences = interval(values, 0.0), interval(values[:, 1:] - values[:, :1], null)
    p = np.where(
        differences[0][1] < differences[0][0],
        1.0,
        2 * special.stdtr(n - 1, -np.abs(differences[1])),
    )
    order = np.argsort(p, -1)
    adjusted = np.maximum.accumulate(
        np.take_along_axis(p, order, -1) * (others - np.arange(others)), -1
    )
    declared = np.empty(p.shape, bool)
    np.put_along_axis(declared, order, adjusted < 0.05, -1)
    return Tested(means[0], differences[0], declared)


def modelled(values: Any, scale: Scale, null: Any = 0.0) -> Tested:
    """The present method, for complete experiments all at once. A difference is declared where the
    simultaneous interval leaves out `null`.
    """
    variants, n = values.shape[1:]
    mean = values.mean(-1)
    share = (mean * n * EXAMPLES + 0.5) / (n * EXAMPLES + 1)
    counted = scale.count is not None
    unit = share * (1 - share) / EXAMPLES if counted else np.ones_like(mean)
    left, total = values - mean[..., None], (1 / unit).sum(1)
    part = (left / unit[..., None]).sum(1, keepdims=True) / total[:, None, None]
    within = ((left - part) ** 2 / unit[..., None]).sum((1, 2))
    square = ((left**2 / unit[..., None]).sum((1, 2)) - within) / (n - 1)
    ratio, free = pooled(left - part, unit)
    free = together(left - part, unit, free)
    error = (np.maximum(ratio, 1.0) if counted else ratio)[:, None] * unit / n
    freedom = free[:, None]
    seed = np.maximum(0, square - ratio) / total / n
    first = np.where(seed > 0, square / n / total, 0.0)[:, None]
    of_mean = error + seed[:, None]
    freedom_of_mean = of_mean**2 / ((of_mean - first) ** 2 / freedom + first**2 / (n - 1))
    half = reach(of_mean, freedom_of_mean, values.var(-1, ddof=1) / n, n)
    bounds = np.stack([mean - half, mean + half])
    if counted:
        factor = half**2 / (share * (1 - share))
        centre = mean + factor / 2
        side = np.sqrt(factor * mean * (1 - mean) + factor**2 / 4)
        bounds = np.stack([centre - side, centre + side]) / (1 + factor)
    differences = values[:, 1:] - values[:, :1]
    difference, variance = differences.mean(-1), error[:, 1:] + error[:, :1]
    separate = differences.var(-1, ddof=1) / n
    rest = quiet(values, unit) if variants > 3 else None
    if rest is not None:
        rest = rest[0] * (unit[:, 1:] + unit[:, :1]) / n, rest[1]
    single = reach(variance, freedom, separate, n, rest)
    loading = np.sqrt(error[:, :1] / variance)
    declared = simultaneous(np.abs(difference - null) / np.sqrt(variance), freedom[:, 0], loading)
    also = np.argwhere(declared & wider(variance, freedom, separate, n, rest))
    for run, place in also:
        joint = Joint(tuple(loading[run]), 0, None)
        away = (difference - null)[run, place]
        p = joint.p(away / math.sqrt(separate[run, place]), n - 1)
        declared[run, place] = p < 0.05
    most = 1.0 if counted else np.inf
    apart = np.clip(np.stack([difference - single, difference + single]), -most, most)
    return Tested(bounds, apart, declared)


def pooled(left: Any, unit: Any) -> tuple[Any, Any]:
    """The error variance [runs], in units, of residuals [runs, variants, seeds] within seeds, and its
    degrees of freedom.
    """
    variants, total, rows = unit.shape[1], (1 / unit).sum(1), left.shape[2] - 1
    spread = unit.sum(1) - variants / total
    square = (unit**2).sum(1) - 2 * unit.sum(1) / total + (variants / total) ** 2
    return (left**2).sum((1, 2)) / (rows * spread), np.round(rows * spread**2 / square, 9)


def together(left: Any, unit: Any, freedom: Any) -> Any:
    """Degrees of freedom [runs], fewer where residuals [runs, variants, seeds] of a seed move together
    in proportion to the units.
    """
    rows, total = left.shape[2] - 1, (1 / unit).sum(1)
    along = unit / np.linalg.norm(unit, axis=1)[:, None]
    spread = unit.sum(1) - unit.shape[1] / total
    square = (unit**2).sum(1) - 2 * unit.sum(1) / total + (unit.shape[1] / total) ** 2
    image = unit * along - (along.sum(1) / total)[:, None]
    quadratic = (along * image).sum(1)
    left_over = rows * (spread - quadratic) ** 2 / (square - 2 * (image**2).sum(1) + quadratic**2)
    whole, common = (left**2).sum((1, 2)), ((left * along[..., None]).sum(1) ** 2).sum(1)
    spent = common**2 / rows + (whole - common) ** 2 / left_over
    fewer = np.minimum(freedom, whole**2 / spent)
    more = common / rows > (whole - common) / left_over
    return np.round(np.where(more, fewer, freedom), 9)


def quiet(values: Any, unit: Any) -> tuple[Any, Any]:
    """The error variances [runs, variants - 1], in units, of the variants that are neither the first
    nor the one of the place, and their degrees of freedom.
    """
    out = []
    for place in range(1, values.shape[1]):
        others = np.delete(values, [0, place], 1)
        left = others - others.mean(-1, keepdims=True)
        of = np.delete(unit, [0, place], 1)
        part = (left / of[..., None]).sum(1, keepdims=True) / (1 / of).sum(1)[:, None, None]
        out.append(pooled(left - part, of))
    return np.stack([pair[0] for pair in out], 1), np.stack([pair[1] for pair in out], 1)


def wider(variance: Any, freedom: Any, separate: Any, n: int, rest: Any = None) -> Any:
    """Where a sum's own variance of n seeds is larger, by more than chance, than `rest`, that of
    the other variants and its degrees of freedom; without it, than what is left of the model's.
    """
    rest, left = rest or (None, freedom - (n - 1.0))
    if rest is None:
        rest = (freedom * variance - (n - 1) * separate) / left
    ratio = np.where(rest > 0, separate / rest, np.inf)
    chance = special.fdtrc(n - 1, np.where(left > 0.5, left, 1.0), ratio)
    return (left > 0.5) & (chance < WIDER)


def reach(variance: Any, freedom: Any, separate: Any, n: int, rest: Any = None) -> Any:
    """Half of the 95 % interval of a sum: the wider of two where its own spread counts too."""
    shared = special.stdtrit(freedom, 0.975) * np.sqrt(variance)
    alone = special.stdtrit(n - 1, 0.975) * np.sqrt(separate)
    return np.where(wider(variance, freedom, separate, n, rest), np.maximum(shared, alone), shared)


def simultaneous(t: Any, freedom: Any, loading: Any) -> Any:
    """Which comparisons [runs, comparisons] are declared by the shared variance, adjusted for all:
    where loadings are uneven, by the package where neither the single p value nor Bonferroni's nor a
    rough quadrature settles it.
    """
    k, p = t.shape[-1], 2 * special.stdtr(freedom[:, None], -t)
    declared = k * p < 0.05
    plain = (np.abs(loading - math.sqrt(0.5)) < 1e-9).all(-1)
    for value in np.unique(freedom[plain]):
        joint = Joint((math.sqrt(0.5),) * k, 0, float(value))
        rows = plain & (freedom == value)
        declared[rows] = t[rows] > joint.critical(0.05, float(value))
    open_ = np.argwhere((p < 0.05) & ~declared & ~plain[:, None])
    for start in range(0, len(open_), 400):
        r, c = open_[start : start + 400].T
        rough = 1 - below(t[r, c], freedom[r], loading[r])
        for close in np.flatnonzero(np.abs(rough - 0.05) < ROUGH):
            run, place = r[close], c[close]
            joint = Joint(tuple(loading[run]), 0, freedom[run])
            rough[close] = joint.p(t[run, place], freedom[run])
        declared[r, c] = rough < 0.05
    return declared


def below(t: Any, freedom: Any, loading: Any) -> Any:
    """P(all |statistics| < t) [runs] for `loading` [runs, comparisons], as the package has it but with
    fewer nodes, of the shared deviation and of the baseline's mean.
    """
    x, w = np.polynomial.legendre.leggauss(20)
    half, ends = freedom[:, None] / 2, np.array([1 - 1e-9, 1e-9])
    low, high = np.sqrt(special.gammainccinv(half, ends) / half).T[..., None]
    s = low + (high - low) * (x + 1) ** 2 / 4
    weights = w * (x + 1) * np.exp((2 * half - 1) * np.log(s) - half * (s**2 - 1))
    size = (t[:, None] * s)[..., None]
    cut = np.minimum(size, 7.0)
    z = np.concatenate([cut * (x + 1), 2 * cut + (7 - cut) * (x + 1)], -1) / 2
    inside = np.concatenate([cut * w, (7 - cut) * w], -1) * np.exp(-(z**2) / 2)
    inside /= math.sqrt(2 * math.pi)
    for load in loading.T[..., None, None]:
        rest = np.sqrt(np.maximum(1 - load**2, 1e-6))
        inside *= special.ndtr((size - load * z) / rest) - special.ndtr((-size - load * z) / rest)
    return (weights * inside.sum(-1)).sum(-1) / weights.sum(-1)


def check(case: Case, values: Any) -> None:
    """The fast path says what the package says, on the first draws."""
    fast = modelled(values[:CHECKED], case.scale)
    for run in range(CHECKED):
        names = [f"v{place}" for place in range(case.variants)]
        family = Family(
            {
                name: dict(enumerate(scores.tolist()))
                for name, scores in zip(names, values[run], strict=True)
            },
            scale=case.scale,
        )
        against = family.against("v0")
        means, differences = (
            [family.mean(name).interval or () for name in names],
            [against[name].alone or () for name in names[1:]],
        )
        np.testing.assert_allclose(means, fast.mean[:, run].T, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(differences, fast.difference[:, run].T, rtol=1e-8, atol=1e-10)
        clear = [(difference.p or 0.0) < 0.05 for difference in against.values()]
        close = [abs((difference.p or 0.0) - 0.05) < 2e-3 for difference in against.values()]
        assert all(
            same or near
            for same, near in zip(np.equal(clear, fast.declared[run]), close, strict=True)
        ), (case, run)


if __name__ == "__main__":
    main()
