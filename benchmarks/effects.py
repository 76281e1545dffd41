"""How often does a report find effects and interactions that are not there? Simulated sweeps of
crossed settings, and of settings that are taken out one at a time.

    python -m benchmarks.effects                    # the table of docs/report.md, half an hour of one core
    python -m benchmarks.effects --runs=1000        # a quick look

Errors, and the effect of the seed, are those of `benchmarks.statistics`; all variants spread alike.
The truth is "none" (no setting does anything) or "main" (each does much, and all add up, so that
interactions are null). For each, in percent: the sweeps in which any effect that is null is found,
adjusted for all, and the upper 95 % bound of that (Clopper and Pearson). "One at a time" has four
settings; what is null is that all together do no more than their sum.

A fast path leaves out sweeps in which no null effect can be found; the package judges all others.
"""

import argparse
import dataclasses
import itertools
from typing import Any

import numpy as np
from scipy import special

from attnlab.experiments.report.effects import BEYOND, INTERACTION, Effect, crossed, one_at_a_time
from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.statistics.scale import Scale
from attnlab.experiments.report.statistics.simultaneous import Joint
from benchmarks.statistics import EXAMPLES, pooled, together

DESIGNS = {"2 x 2": (2, 2), "2 x 3": (2, 3), "2 x 2 x 2": (2, 2, 2), "one at a time": ()}
SEEDS = (2, 3, 5, 8)
ERRORS = ("normal", "skewed", "half", "ceiling")
CHECKED = 400  # sweeps of every case among which the package's whole judgement is compared
SHARES = {"half": 0.5, "ceiling": 0.98}


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of sweep."""

    design: str
    errors: str
    shared: bool
    truth: str
    seeds: int

    def settings(self) -> dict[str, dict[str, str]]:
        """Settings of each variant by place."""
        sizes = DESIGNS[self.design]
        cells = list(itertools.product(*map(range, sizes)))
        if not sizes:
            cells = [(0,) * 4, *(tuple(np.eye(4, dtype=int)[one]) for one in range(4)), (1,) * 4]
        return {f"v{n}": {f"s{i}": str(x) for i, x in enumerate(c)} for n, c in enumerate(cells)}

    def draw(self, runs: int, rng: np.random.Generator) -> Any:
        """Values [runs, variants, seeds]."""
        settings = self.settings()
        changed = np.array([sum(map(int, own.values())) for own in settings.values()])
        size, shape = (self.truth == "main") * changed, (runs, len(settings), self.seeds)
        shared = rng.normal(size=(runs, 1, self.seeds)) * self.shared
        if self.errors not in SHARES:
            errors = rng.normal(size=shape)
            if self.errors == "skewed":
                errors = (np.exp(0.5 * errors) - np.exp(0.125)) / np.sqrt(
                    np.exp(0.5) - np.exp(0.25)
                )
            return errors + shared - 5.0 * size[:, None]
        level = SHARES[self.errors] - (0.06 if self.errors == "half" else 0.01) * size
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        spread = 0.3 * np.sqrt(1 + self.shared)
        low, high = np.full_like(level, -20.0), np.full_like(level, 20.0)
        for _ in range(60):
            centre = (low + high) / 2
            mean = special.expit(centre[:, None] + spread * nodes) @ weights / weights.sum()
            low, high = np.where(mean < level, centre, low), np.where(mean < level, high, centre)
        p = special.expit(centre[:, None] + 0.3 * (rng.normal(size=shape) + shared))
        return rng.binomial(EXAMPLES, p) / EXAMPLES


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20_000, help="sweeps of each kind")
    runs = parser.parse_args().runs
    np.seterr(divide="ignore", invalid="ignore")
    head = ["design", "errors", "seed effect", "truth", *(f"{seeds} seeds" for seeds in SEEDS)]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)
    kinds = itertools.product(ERRORS, DESIGNS, (False, True), ("none", "main"))
    for errors, design, shared, truth in kinds:
        cells = []
        for seeds in SEEDS:
            found = measure(Case(design, errors, shared, truth, seeds), runs)
            most = special.betaincinv(found + 1, runs - found, 0.95)
            cells.append(f"{100 * found / runs:.1f} ({100 * most:.1f})")
        row = [design, errors, "yes" if shared else "no", truth, *cells]
        print("| " + " | ".join(row) + " |", flush=True)


def measure(case: Case, runs: int) -> int:
    """In how many simulated sweeps a null effect is found."""
    key = [list(DESIGNS).index(case.design), ERRORS.index(case.errors), case.shared, case.seeds]
    values = case.draw(runs, np.random.default_rng([*key, case.truth == "main"]))
    settings, counted = case.settings(), case.errors in SHARES
    design = crossed(settings, "v0") or one_at_a_time(settings, "v0")
    design = tuple(effect for effect in design if DESIGNS[case.design] or effect.kind == BEYOND)
    null = {e.name for e in design if case.truth == "none" or e.kind in (INTERACTION, BEYOND)}
    weights = np.array([[e.weights.get(name, 0.0) for name in settings] for e in design])
    mean, n = values.mean(-1), case.seeds
    share = (mean * n * EXAMPLES + 0.5) / (n * EXAMPLES + 1)
    unit = share * (1 - share) / EXAMPLES if counted else np.ones_like(mean)
    left = values - mean[..., None]
    left -= (left / unit[..., None]).sum(1, keepdims=True) / (1 / unit).sum(1)[:, None, None]
    ratio, freedom = pooled(left, unit)
    freedom = together(left, unit, freedom)
    error = (np.maximum(ratio, 1.0) if counted else ratio)[:, None] * unit / n
    t = np.abs(mean @ weights.T) / np.sqrt(error @ (weights**2).T)
    grid = np.geomspace(0.5 * freedom.min(), 2 * freedom.max(), 40)
    joints = [Joint((0.0,) * len(design), 0, float(f)) for f in grid]
    critical = [joint.critical(0.05, joint.freedom or 0.0) for joint in joints]
    bound = 0.95 * np.interp(freedom, grid, critical)
    nulls = np.array([effect.name in null for effect in design])
    scale = Scale(0, 1, EXAMPLES) if counted else Scale()
    found = 0
    for run in np.flatnonzero((t[:, nulls] > bound[:, None]).any(1)):
        runs_of = {
            name: dict(enumerate(y.tolist())) for name, y in zip(settings, values[run], strict=True)
        }
        family = Family(runs_of, scale=scale)
        tested = [
            effect
            for effect, near in zip(design, nulls & (t[run] > bound[run]), strict=True)
            if near
        ]
        chances = [p_value(family, effect, len(design)) for effect in tested]
        if run < CHECKED:
            judged = family.effects({effect.name: effect.weights for effect in design})
            assert chances == [judged[effect.name].p for effect in tested]
        found += min(chances) < 0.05
    return found


def p_value(family: Family, effect: Effect, count: int) -> float:
    """The adjusted p of one of `count` effects, as `Family.effects` has it, without its interval."""
    joints = {
        own: Joint((0.0,) * count, 0, None if own else family.model.freedom) for own in (0, 1)
    }
    judging = family.model.judging(effect.weights)
    tests = [(joints[judge.own], judge.value, judge.error, judge.freedom) for judge in judging]
    return max(joint.p(value / error, freedom) for joint, value, error, freedom in tests if error)


if __name__ == "__main__":
    main()
