"""Are the report's intervals and tests as good as they say? Simulated experiments with known
answers, the present method beside the former.

    python -m benchmarks.statistics                 # the table of docs/report.md, on one core
    python -m benchmarks.statistics --runs=500      # a quick look

Experiments of 2, 5 and 12 variants with 3, 5 and 10 seeds. Errors are
  normal    independent and normal
  ceiling   shares of 500 test examples near 0.98: a normal error of 0.3 on the logit scale, and binomial sampling of the examples
  skewed    lognormal with sigma 0.5, centred (skewness 1.75)
  failing   normal, but one seed in ten ends 10 standard deviations lower
spreads are equal, or every second variant has ten times the standard deviation (near the ceiling:
1.5 on the logit scale against 0.1), and in the rows with a seed effect an error of the size of a
run's own is shared by all variants of a seed.

For each, over all experiments, in percent: how often the 95 % interval of a mean, and that of a
single difference to the baseline, holds the truth; how often any variant is declared different from
the baseline where none is; and how often a variant that differs by 1, 2 and 3 standard deviations
of a run (root mean square of the two) is declared so, after adjustment for all comparisons. A range
is over the numbers of variants; power stands for 2, 5 and 12 of them. In brackets the former
method: Student's t of each variant, paired t tests, Holm. The last columns: how often seeds are
flagged as lying apart in an experiment where one did, and where none did.

The simulation has a fast path of its own, for complete experiments; on some draws of every case it
is held against the package's.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from attnlab.experiments.report.statistics import Family, Scale
from attnlab.experiments.report.statistics.model import BLOCK
from attnlab.experiments.report.statistics.seeds import apart, spread, typical
from attnlab.experiments.report.statistics.simultaneous import Joint
from attnlab.experiments.report.statistics.spread import WORTH

EXAMPLES, SHARE = 500, 0.98
EFFECTS = (1, 2, 3)
VARIANTS, SEEDS = (2, 5, 12), (3, 5, 10)
ERRORS = ("normal", "ceiling", "skewed", "failing")
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
        small, large = (0.1, 1.5) if self.errors == "ceiling" else (1.0, 10.0)
        odd = np.arange(self.variants) % 2 == 1
        return (
            np.where(odd, large, small)
            if self.unequal
            else np.full(self.variants, 0.3 if self.errors == "ceiling" else 1.0)
        )

    @property
    def scale(self) -> Scale:
        return Scale(0, 1, EXAMPLES) if self.errors == "ceiling" else Scale()


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
    parser.add_argument("--runs", type=int, default=10_000, help="experiments of each kind")
    parser.add_argument("--errors", choices=ERRORS, action="append", help="only these")
    chosen = parser.parse_args()
    np.seterr(divide="ignore", invalid="ignore")
    rows = []
    for errors, unequal, shared, seeds in itertools.product(
        chosen.errors or ERRORS, (False, True), (False, True), SEEDS
    ):
        found = [
            measure(Case(errors, unequal, shared, seeds, variants), chosen.runs)
            for variants in VARIANTS
        ]
        rows.append(
            (
                errors,
                "unequal" if unequal else "equal",
                "yes" if shared else "no",
                str(seeds),
                *cells(found),
            )
        )
    head = ["errors", "spreads", "seed effect", "seeds", "mean", "difference", "family error"]
    head += [*(f"power, d = {effect}" for effect in EFFECTS), "flagged", "false flags"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    print("\n".join("| " + " | ".join(row) + " |" for row in rows))


def cells(found: Sequence[dict[Any, Any]]) -> list[str]:
    """A row: ranges over the numbers of variants, power for each of them."""
    out = [
        f"{spanned(found, 'new', key)} ({spanned(found, 'old', key)})"
        for key in ("mean", "difference", "error")
    ]
    for effect in EFFECTS:
        new, old = (
            ", ".join(f"{100 * one[method, effect]:.0f}" for one in found)
            for method in ("new", "old")
        )
        out.append(f"{new} ({old})")
    return [*out, *(spanned(found, "flag", key) for key in (True, False))]


def spanned(found: Sequence[dict[Any, Any]], method: str, key: Any) -> str:
    """The least and the most in percent; "-" where there was nothing to count."""
    values = [100 * one[method, key] for one in found if not math.isnan(one[method, key])]
    if not values:
        return "-"
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low}-{high}"


def measure(case: Case, runs: int) -> dict[Any, Any]:
    """All figures of one kind of experiment."""
    rng = np.random.default_rng(
        [7, case.seeds, case.variants, ERRORS.index(case.errors), case.unequal, case.shared]
    )
    values, truth, deviation, failed = draw(case, runs, rng, 0.0)
    out: dict[Any, Any] = {}
    check(case, values)
    for name, method in (("new", modelled), ("old", paired)):
        found = method(values, case.scale)
        out[name, "mean"] = inside(found.mean, truth)
        out[name, "difference"] = inside(found.difference, truth[1:] - truth[:1])
        out[name, "error"] = float(found.declared.any(-1).mean())
    flags = np.array([flagged(one) for one in values[: min(runs, 1000)]])
    bad = failed[: len(flags)]
    out["flag", True] = float(flags[bad].mean()) if bad.any() else math.nan
    out["flag", False] = float(flags[~bad].mean()) if (~bad).any() else math.nan
    for effect in EFFECTS:
        for _ in range(6):  # near the ceiling the deviation depends on the mean
            size = effect * deviation
            deviation = draw(case, 1, rng, size)[2]
        moved = draw(case, runs, rng, size)[0]
        for name, method in (("new", modelled), ("old", paired)):
            out[name, effect] = float(method(moved, case.scale).declared[:, 0].mean())
    return out


def inside(interval: Any, truth: Any) -> float:
    """How often an interval [2, runs, variants] holds the truth."""
    return float(((interval[0] <= truth) & (truth <= interval[1])).mean())


def flagged(values: Any) -> bool:
    """Whether any variant of one experiment is flagged."""
    spreads = [spread(one) for one in values.tolist()]
    others = (spreads[:place] + spreads[place + 1 :] for place in range(len(spreads)))
    return any(
        apart(dict(enumerate(one)), typical(rest), 0.0)
        for one, rest in zip(values.tolist(), others, strict=True)
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
    if case.errors == "ceiling":
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
    """Shares of `EXAMPLES` whose means are `SHARE` less `moved`, whatever the spread on the logit
    scale.
    """
    spreads = case.spreads
    total = np.sqrt(spreads**2 + (spreads[0] ** 2 if case.shared else 0.0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    centres, variances = [], []
    for deviation, target in zip(total, SHARE - moved, strict=True):
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
    return rng.binomial(EXAMPLES, p) / EXAMPLES, SHARE - moved, math.sqrt(sum(variances[:2]) / 2)


def paired(values: Any, scale: Scale) -> Tested:
    """The former method: t intervals of each variant, paired t tests, Holm. Where all values agree
    it has neither interval nor p.
    """
    n, others = values.shape[-1], values.shape[1] - 1
    factor = special.stdtrit(n - 1, 0.975)

    def interval(x: Any) -> tuple[Any, Any]:
        mean, half = x.mean(-1), factor * x.std(-1, ddof=1) / math.sqrt(n)
        half = np.where(half > 1e-12, half, -np.inf)  # none holds nothing
        return np.stack([mean - half, mean + half]), mean * factor / half

    means, differences = interval(values), interval(values[:, 1:] - values[:, :1])
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


def modelled(values: Any, scale: Scale) -> Tested:
    """The present method, for complete experiments all at once."""
    variants, n = values.shape[1:]
    f, total = n - 1, variants * (n - 1)
    mean = values.mean(-1)
    share = (mean * n * EXAMPLES + 0.5) / (n * EXAMPLES + 1)
    counted = scale.count is not None
    unit = share * (1 - share) / EXAMPLES if counted else np.ones_like(mean)
    own = np.where(values.std(-1) > 1e-12, values.var(-1, ddof=1), 0.0) / unit
    logs = np.log(
        np.maximum(np.maximum(own, 1) if counted else own, 1e-4 * own.mean(-1, keepdims=True))
    )
    separate = logs.var(-1, ddof=1) - special.polygamma(1, f / 2) > special.polygamma(1, WORTH / 2)
    blocked, within, square = seed_block(values, unit, own, counted)
    blocked &= ~separate
    free = np.where(blocked, (variants - 1) * f, total).astype(float)
    u = np.where(separate[:, None], own, np.where(blocked, within, own.mean(-1))[:, None])
    freedom = np.where(separate[:, None], float(f), free[:, None]) * np.ones_like(u)
    if counted:
        u, freedom = np.maximum(u, 1.0), np.where((u > 1) | separate[:, None], freedom, np.inf)
    error = u * unit / n
    seed = (
        np.where(blocked, np.maximum(0, square - within) / variants * unit.mean(-1), 0.0)[:, None]
        / n
    )
    first = np.where(blocked, square * unit.mean(-1), 0.0)[:, None] / n / variants
    parts = (error + seed - first) ** 2 / freedom + first**2 / f
    of_mean = np.where(seed > 0, (error + seed) ** 2 / parts, freedom)
    half = student(of_mean, 0.975) * np.sqrt(error + seed)
    a, b = error[:, 1:], error[:, :1]
    satterthwaite = (a + b) ** 2 / (a**2 + b**2) * f
    of_difference = np.where(separate[:, None], np.sqrt(satterthwaite * f), freedom[:, 1:])
    difference, deviation = mean[:, 1:] - mean[:, :1], np.sqrt(a + b)
    reach = student(of_difference, 0.975) * deviation
    declared = simultaneous(
        np.abs(difference) / deviation, of_difference, np.sqrt(b / (a + b)), separate
    )
    bounds = np.stack([mean - half, mean + half])
    if counted:
        logit, width = special.logit(share), half / (share * (1 - share))
        bounds = np.stack(
            [
                np.minimum(special.expit(logit - width), mean),
                np.maximum(special.expit(logit + width), mean),
            ]
        )
    return Tested(bounds, np.stack([difference - reach, difference + reach]), declared)


def seed_block(values: Any, unit: Any, own: Any, counted: bool) -> tuple[Any, Any, Any]:
    """Whether the seed is a block, and the mean squares of errors and seeds."""
    variants, n = values.shape[1:]
    left = values - values.mean(-1, keepdims=True)
    seeds = left.mean(1, keepdims=True)
    within = ((left - seeds) ** 2).sum(-1) / unit
    error = within.sum(-1) / ((variants - 1) * (n - 1))
    square = (own.sum(-1) * (n - 1) - within.sum(-1)) / (n - 1)
    clear = (
        special.fdtrc(
            n - 1,
            (variants - 1) * (n - 1),
            np.maximum(square, 0) / (np.maximum(error, 1) if counted else error),
        )
        < BLOCK
    )
    if variants > 2:
        freedom = (n - 1) * (1 - 1 / variants)
        apart = np.log(np.maximum(within, 1e-4 * within.mean(-1, keepdims=True))).var(-1, ddof=1)
        clear &= apart - special.polygamma(1, freedom / 2) <= special.polygamma(1, WORTH / 2)
    return clear, error, square


def student(freedom: Any, p: float) -> Any:
    """Quantiles of Student's t, of the normal for infinite freedom."""
    finite = np.isfinite(freedom)
    return np.where(finite, special.stdtrit(np.where(finite, freedom, 1.0), p), special.ndtri(p))


def simultaneous(t: Any, freedom: Any, loading: Any, separate: Any) -> Any:
    """Which comparisons are declared, adjusted for all: by quadrature where neither the single p
    value nor Bonferroni's settles it.
    """
    finite = np.isfinite(freedom)
    p = np.where(
        finite, 2 * special.stdtr(np.where(finite, freedom, 1.0), -t), 2 * special.ndtr(-t)
    )
    k = t.shape[-1]
    declared = k * p < 0.05
    plain = ~separate & (np.abs(loading - math.sqrt(0.5)) < 1e-9).all(-1) & finite.all(-1)
    for one in np.unique(freedom[plain]):
        joint = Joint((math.sqrt(0.5),) * k, 0, float(one))
        rows = plain & (freedom[:, 0] == one)
        declared[rows] = t[rows] > joint.critical(0.05, float(one))
    open_ = np.argwhere((p < 0.05) & ~declared & ~plain[:, None])
    for start in range(0, len(open_), 400):
        run, place = open_[start : start + 400].T
        shared = finite[run, place] & ~separate[run]
        size = np.where(separate[run], -special.ndtri(p[run, place] / 2), t[run, place])
        for chosen, nodes in ((shared, 16), (~shared, 1)):
            r, c, u = run[chosen], place[chosen], (np.arange(nodes) + 0.5) / nodes
            f = freedom[r, c, None]
            scale = (
                np.sqrt(2 * special.gammaincinv(f / 2, u) / f)
                if nodes > 1
                else np.ones((len(r), 1))
            )
            declared[r, c] = 1 - below(size[chosen, None] * scale, loading[r]) < 0.05
    return declared


def below(size: Any, loading: Any) -> Any:
    """P(all |statistics| < size), the mean over the nodes of `size` [runs, nodes]; `loading` [runs,
    comparisons].
    """
    z, w = np.polynomial.hermite_e.hermegauss(24)
    chance = np.ones((*size.shape, len(z)))
    for one in loading.T:
        rest = np.sqrt(np.maximum(1 - one**2, 1e-6))[:, None, None]
        shift = one[:, None, None] * z
        chance *= special.ndtr((size[..., None] - shift) / rest) - special.ndtr(
            (-size[..., None] - shift) / rest
        )
    return (chance @ (w / w.sum())).mean(-1)


def check(case: Case, values: Any) -> None:
    """The fast path says what the package says, on the first draws."""
    fast = modelled(values[:CHECKED], case.scale)
    for run in range(CHECKED):
        names = [f"v{place}" for place in range(case.variants)]
        family = Family(
            {
                name: dict(enumerate(one.tolist()))
                for name, one in zip(names, values[run], strict=True)
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
        clear = [(one.p or 0.0) < 0.05 for one in against.values()]
        close = [abs((one.p or 0.0) - 0.05) < 2e-3 for one in against.values()]
        assert all(
            same or near
            for same, near in zip(np.equal(clear, fast.declared[run]), close, strict=True)
        ), (case, run)


if __name__ == "__main__":
    main()
