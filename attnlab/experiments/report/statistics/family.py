"""Variants that are compared on one measure, and their statistics over seeds."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from attnlab.experiments.report.statistics import spread
from attnlab.experiments.report.statistics.planned import Dunnett
from attnlab.experiments.report.statistics.scale import UNBOUNDED, Interval, Scale

if TYPE_CHECKING:
    from attnlab.experiments.report.statistics.model import Estimate, Fit, Values

ALPHA = 0.05
Share = tuple[float, Interval]
"""A ratio of two sums, and its interval."""
SUPPORTED, REFUTED, UNDECIDED = "supported", "not supported", "undecided"
ONE_SEED, AGREE = "one seed has no spread", "all seeds agree, which leaves no spread"
TIE, INCLUDES = "equal within rounding", "the bound is inside"


@dataclasses.dataclass(frozen=True)
class Summary:
    """Values of one variant over seeds.

    Attributes:
      n: how many there are.
      mean: of them, the least squares mean where seeds are missing and a block; None without any.
      std: sample standard deviation (n - 1); None for fewer than two.
      interval: of the mean, by the model; None if nothing gives a variance.
      freedom: degrees of freedom of the interval.
      own: whether the values vary more over the seeds than the shared variance allows, so that the
        interval is by their own spread too.
    """

    n: int
    mean: float | None
    std: float | None
    interval: Interval | None
    freedom: float = 0.0
    own: bool = False


@dataclasses.dataclass(frozen=True)
class Difference:
    """One variant minus another.

    Attributes:
      mean: the difference.
      interval: at 1 - alpha for all comparisons of the same kind together; it excludes 0 exactly
        where `p` is below alpha.
      alone: at 1 - alpha for this one by itself.
      p: adjusted for all comparisons of the same kind; 1 for a tie.
      effect: Hedges' g, in standard deviations of one run.
      freedom: degrees of freedom.
      why: why there is no interval (`ONE_SEED`, `AGREE`) or what is special (`TIE`); "" otherwise.
      own: whether it varies more over the seeds than the shared variance allows, so that it is
        judged by its own spread too.
    """

    mean: float
    interval: Interval | None
    alone: Interval | None
    p: float | None
    effect: float | None
    freedom: float
    why: str = ""
    own: bool = False


@dataclasses.dataclass(frozen=True)
class Decision:
    """A contrast sum of w_v m_v >= a, and what the seeds say about it.

    Attributes:
      mean: of the sum.
      lower: its one-sided lower bound at 1 - alpha; above a: supported.
      upper: its one-sided upper bound at 1 - alpha / k, for a claim of k contrasts; below a: not
        supported.
      p: one-sided, against "the sum is at most a".
      p_refuted: one-sided, against "the sum is at least a", times k.
      outcome: `SUPPORTED`, `REFUTED` or `UNDECIDED`.
      rests: which bound the outcome rests on: "lower", "upper", or "" for undecided.
      freedom: degrees of freedom.
      why: what keeps it undecided (`ONE_SEED`, `AGREE`, `TIE`, `INCLUDES`); "" otherwise.
    """

    mean: float
    lower: float | None
    upper: float | None
    p: float | None
    p_refuted: float | None
    outcome: str
    rests: str
    freedom: float
    why: str = ""


def conjunction(outcomes: Collection[str]) -> str:
    """Returns the outcome of a claim that all of several contrasts hold: not supported if any is,
    else undecided if any is, else supported.

    Supported if each is at alpha: "all hold" is wrong only if the test of a contrast that does not
      hold is wrong, which has probability at most alpha (an intersection-union test, Berger 1982).
      Not supported if one is refuted; any of them may be refuted wrongly, hence alpha over their
      number (`Family.contrast`).
    """
    return REFUTED if REFUTED in outcomes else UNDECIDED if UNDECIDED in outcomes else SUPPORTED


@dataclasses.dataclass(frozen=True)
class Family:
    """The variants of one comparison.

    Attributes:
      values: values[variant][seed]; the same seed pairs variants, and seeds may be missing.
      mode: "max" or "min", whichever is better.
      scale: what is known of the measure.
      alpha: the error rate of a family of comparisons, 1 - the level of intervals.
    """

    values: "Values"
    mode: str = "max"
    scale: Scale = UNBOUNDED
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        """Checks that `mode` is "max" or "min" and that all values are finite; raises ValueError
        otherwise.
        """
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode {self.mode!r} is neither max nor min")
        if not all(all(map(math.isfinite, runs.values())) for runs in self.values.values()):
            raise ValueError("a value is not finite: leave it out, as a missing seed")

    @functools.cached_property
    def model(self) -> "Fit":
        """The fitted model; its `kind` says whether the seed is a block."""
        from attnlab.experiments.report.statistics.model import fit

        return fit(self.values, self.scale)

    @functools.cached_property
    def failing(self) -> Mapping[str, tuple[int, ...]]:
        """Returns, by variant, the seeds whose values lie apart from its others (`spread.apart`);
        variants without such seeds are left out.
        """
        several = {name: list(runs.values()) for name, runs in self.values.items() if len(runs) > 1}
        spreads = {name: spread.spread(runs) for name, runs in several.items()}
        outlying = {}
        for name, runs in self.values.items():
            others = spread.typical([size for other, size in spreads.items() if other != name])
            if apart := spread.apart(runs, others, self.model.rounding):
                outlying[name] = apart
        return outlying

    def mean(self, variant: str, method: str = "model") -> Summary:
        """Returns a `Summary` of a variant's values (number, mean, standard deviation, interval,
        degrees of freedom), the interval by the "model" of all variants or by its own "bootstrap";
        without values the number is 0, the mean None.
        """
        values = list(self.values[variant].values())
        if not values:
            return Summary(0, None, None, None)
        estimate = self.model.alone(variant, math.fsum(values) / len(values))
        interval, own = None, False
        if method == "bootstrap":
            interval = spread.bootstrap_interval(values, 1 - self.alpha)
        elif estimate.error is not None:
            judging = (estimate, *self.model.judging({variant: 1.0})[1:])
            own = len(judging) > 1
            reach = self._reach(judging, 1 - self.alpha / 2)
            interval = self.scale.around(estimate.value, len(values), reach)
        deviation = spread.deviation(values)
        return Summary(len(values), estimate.value, deviation, interval, estimate.freedom, own)

    def against(self, baseline: str) -> dict[str, Difference]:
        """Returns, by name, the `Difference` of every other variant to the baseline (variant minus
        baseline) by Dunnett's test of the fitted model; {} if the baseline has no value.
        """
        if baseline not in self.model.names:
            return {}
        others = [name for name in self.model.names if name != baseline]
        loadings = tuple(self._loading(name, baseline) for name in others)
        return {name: self._difference({name: 1.0, baseline: -1.0}, loadings, 0) for name in others}

    def pairs(self) -> dict[tuple[str, str], Difference]:
        """Returns, by pair of names, the `Difference` of every pair of variants (earlier minus
        later) by Tukey's test of the fitted model.
        """
        groups = len(self.model.names)
        pairs = itertools.combinations(self.model.names, 2)
        return {(a, b): self._difference({a: 1.0, b: -1.0}, (), groups) for a, b in pairs}

    def effects(
        self, sums: Mapping[str, Mapping[str, float]], count: int = 0
    ) -> dict[str, Difference]:
        """Returns each sum of weight times mean (by name; weights that add up to 0, of variants with
        a value) as a `Difference`, adjusted for all of them together, or for `count` if those are
        more.

        The adjustment takes the sums for independent but for their shared variance, as those of a
        complete cross of settings with two values each are where no value is missing; for all
        others it is conservative (Sidak 1967).
        """
        loadings = (0.0,) * max(count, len(sums))
        return {name: self._difference(weights, loadings, 0) for name, weights in sums.items()}

    def share(self, part: Mapping[str, float], whole: Mapping[str, float]) -> Share | None:
        """Returns the weighted sum of means `part` divided by the sum `whole` (both weights by
        variant) and its interval (low, high) at 1 - alpha (Fieller 1954), or None if `whole` is not
        known to differ from 0 or a variance is unknown or 0.
        """
        rest = {name: part.get(name, 0.0) - whole.get(name, 0.0) for name in {*part, *whole}}
        a, b, c = (self.model.estimate(weights) for weights in (part, whole, rest))
        if not a.variance or not b.variance or c.variance is None:
            return None
        square = spread.quantile(a.freedom, 1 - self.alpha / 2) ** 2
        least, ab = b.value**2 - square * b.variance, (a.variance + b.variance - c.variance) / 2
        if least <= 0:
            return None
        middle = (a.value * b.value - square * ab) / least
        half = math.sqrt(max(0.0, middle**2 - (a.value**2 - square * a.variance) / least))
        return a.value / b.value, (middle - half, middle + half)

    def ranks(self) -> dict[str, float]:
        """Returns the rank of each variant that has a value, by its mean: 1 for the best; equal
        means share theirs.
        """
        sign, tie = (-1 if self.mode == "max" else 1), self.model.rounding
        means = [sign * self.model.estimate({name: 1.0}).value for name in self.model.names]
        ranks = (0.5 + sum((x < m - tie) + (abs(x - m) <= tie) / 2 for x in means) for m in means)
        return dict(zip(self.model.names, ranks, strict=True))

    def better(self) -> set[tuple[str, str]]:
        """Returns the pairs of variants of which the first is significantly better by Tukey's test
        (`pairs`).
        """
        sign = 1 if self.mode == "max" else -1
        return {
            pair if sign * gap.mean > 0 else pair[::-1]
            for pair, gap in self.pairs().items()
            if gap.p is not None and gap.p < self.alpha
        }

    def best(self) -> str | None:
        """Returns the variant that is significantly better than every other (`better`), or None if
        there is none, or fewer than two variants.
        """
        wins = [first for first, _ in self.better()]
        return next((name for name in wins if wins.count(name) == len(self.model.names) - 1), None)

    def contrast(
        self, weights: Mapping[str, float], at_least: float, contrasts: int = 1
    ) -> Decision:
        """Returns a `Decision` on whether the sum over variants of weight times mean is >=
        `at_least`: the sum, its bounds (the upper adjusted for `contrasts` contrasts) and one-sided
        p values, None at a tie or without spread, and the outcome; raises KeyError if a variant has
        no value.

        Raises:
          KeyError: a variant has no value.
        """
        if missing := [name for name in weights if name not in self.model.names]:
            raise KeyError(f"no value of {', '.join(missing)}")
        judging = self.model.judging(weights)
        total = judging[0]
        tie = abs(total.value - at_least) <= self._rounding(weights.values(), at_least)
        if tie or total.error is None:
            why = TIE if tie else self._without(total)
            return Decision(total.value, None, None, None, None, UNDECIDED, "", total.freedom, why)
        away = total.value - at_least
        tests = [(judge.freedom, away / judge.error) for judge in judging if judge.error]
        p, refuted = (
            max(spread.upper_tail(freedom, sign * t) for freedom, t in tests) for sign in (1, -1)
        )
        refuted = min(1.0, contrasts * refuted)
        lower = total.value - self._reach(judging, 1 - self.alpha)
        upper = total.value + self._reach(judging, 1 - self.alpha / contrasts)
        bounds = self._clip((lower, upper), weights)
        outcome, rests, why = UNDECIDED, "", INCLUDES
        if p < self.alpha:
            outcome, rests, why = SUPPORTED, "lower", ""
        elif refuted < self.alpha:
            outcome, rests, why = REFUTED, "upper", ""
        return Decision(total.value, *bounds, p, refuted, outcome, rests, total.freedom, why)

    def detectable(self, variant: str, baseline: str) -> float | None:
        """Returns the smallest true difference of two variants that the smaller of their numbers of
        seeds finds with probability `planned.CHANCE` in Dunnett's test, or None without spread or
        below two seeds.
        """
        estimate = self.model.judging({variant: 1.0, baseline: -1.0})[-1]
        if estimate.error is None:
            return None
        runs = self._runs(variant, baseline)
        run = estimate.error / math.sqrt(sum(1 / n for n in runs))
        per_seed = estimate.freedom / max(1, max(self.model.runs) - 1)
        test = Dunnett(run, per_seed, len(self.model.names) - 1, self.alpha)
        return test.detectable(min(runs))

    @staticmethod
    def _reach(judging: "Iterable[Estimate]", level: float) -> float:
        """How far the widest of several bounds at `level` is from the value."""
        return max(
            judge.error * spread.quantile(judge.freedom, level) for judge in judging if judge.error
        )

    def _runs(self, *names: str) -> list[int]:
        return [self.model.runs[self.model.names.index(name)] for name in names]

    def _loading(self, name: str, baseline: str) -> float:
        """Returns the correlation of the difference of `name` and the baseline with the baseline's
        mean, from their variances of a run; sqrt(0.5) where both are 0 or unknown.
        """
        runs = zip((name, baseline), self._runs(name, baseline), strict=True)
        other, base = ((self.model.run_variance(variant) or 0.0) / n for variant, n in runs)
        return math.sqrt(base / (other + base)) if other + base > 0 else math.sqrt(0.5)

    def _difference(
        self, weights: Mapping[str, float], loadings: tuple[float, ...], groups: int
    ) -> Difference:
        """Returns the `Difference` of a weighted sum of means, such as a difference of two: its p
        value and interval adjusted by `Joint(loadings, groups)` for multiple comparisons, its
        unadjusted interval and effect size.
        """
        from attnlab.experiments.report.statistics.simultaneous import Joint

        judging = self.model.judging(weights)
        shared, last = judging[0], judging[-1]
        size = sum(map(abs, weights.values())) / 2
        tie = abs(shared.value) <= max(1.0, size) * self.model.rounding
        if shared.error is None:
            agree = tie and shared.freedom > 0
            p, why = (1.0, TIE) if agree else (None, self._without(shared))
            return Difference(shared.value, None, None, p, None, shared.freedom, why)
        p, reach = 0.0, 0.0
        for judge in judging:
            assert judge.error is not None
            joint = Joint(loadings, groups, None if judge.own else self.model.freedom)
            p = max(p, joint.p(judge.value / judge.error, judge.freedom))
            reach = max(reach, judge.error * joint.critical(self.alpha, judge.freedom))
        alone = self._reach(judging, 1 - self.alpha / 2)
        simultaneous, single = (
            self._clip((shared.value - by, shared.value + by), weights) for by in (reach, alone)
        )
        variances = [self.model.run_variance(name) or 0.0 for name in weights]
        run = sum(variances) / len(variances) * (last.variance or 0.0) / (shared.variance or 1.0)
        effect = spread.effect_size(shared.value, run, last.freedom)
        why, p = (TIE, 1.0) if tie else ("", p)
        return Difference(
            shared.value, simultaneous, single, p, effect, last.freedom, why, last.own
        )

    def _clip(self, interval: Interval, weights: Mapping[str, float]) -> Interval:
        """Returns the interval of a weighted sum cut to the sum's possible range, if the weights
        sum to 0; unchanged otherwise.
        """
        if not math.isclose(sum(weights.values()), 0.0, abs_tol=1e-12):
            return interval
        return self.scale.clip(interval, sum(weight for weight in weights.values() if weight > 0))

    def _rounding(self, weights: Iterable[float], at_least: float) -> float:
        """Returns the largest distance of a weighted sum from the bound `at_least` that counts as a
        tie.
        """
        return max(1.0, sum(map(abs, weights))) * max(
            self.model.rounding, self.scale.rounding([at_least])
        )

    def _without(self, estimate: "Estimate") -> str:
        return ONE_SEED if estimate.variance is None else AGREE
