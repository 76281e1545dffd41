"""How often does a report over several tasks tell variants apart that are equal? Simulated sweeps of
the same variants on several tasks.

    python -m benchmarks.over_tasks                  # the table of docs/report.md
    python -m benchmarks.over_tasks --runs=1000      # a quick look

Errors are normal, skewed (lognormal, as in `benchmarks.statistics`), or shares of 500 test examples
("half"); each seed has an effect on all variants of a task. The truth is "none" (all variants are
equal on every task) or "pairs" (variants 0 and 1, 2 and 3, ... are equal, and far from the others).
In percent: the experiments in which, on any task, one of two equal variants is called better, and the
upper 95 % bound of that (Clopper and Pearson). A true mean rank lies outside its interval only where
that happens.

A fast path leaves out tasks on which no equal pair can be told apart; the package judges all others.
"""

import argparse
import itertools
from typing import Any

import numpy as np
from scipy import special, stats

from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.statistics.scale import Scale
from benchmarks.statistics import EXAMPLES, pooled, together

SEEDS = (2, 3, 5)
ERRORS = ("normal", "skewed", "half")
SHAPES = ((2, 3), (3, 5), (5, 4))
"""Tasks and variants."""
LEVEL = 0.05


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20_000, help="experiments of each kind")
    runs = parser.parse_args().runs
    np.seterr(divide="ignore", invalid="ignore")
    head = ["tasks", "variants", "errors", "truth", *(f"{seeds} seeds" for seeds in SEEDS)]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)
    for (tasks, variants), errors, truth in itertools.product(SHAPES, ERRORS, ("none", "pairs")):
        cells = []
        for seeds in SEEDS:
            key = [tasks, variants, ERRORS.index(errors), truth == "pairs", seeds]
            values = draw(errors, groups(truth, variants), (runs * tasks, variants, seeds), key)
            wrong = mistakes(values, errors == "half", groups(truth, variants), LEVEL / tasks)
            found = int(wrong.reshape(runs, tasks).any(1).sum())
            most = special.betaincinv(found + 1, runs - found, 0.95)
            cells.append(f"{100 * found / runs:.1f} ({100 * most:.1f})")
        row = [f"{tasks}", f"{variants}", errors, truth, *cells]
        print("| " + " | ".join(row) + " |", flush=True)


def groups(truth: str, variants: int) -> Any:
    """The group [variants] of equal variants that each belongs to."""
    return np.arange(variants) // (2 if truth == "pairs" else variants)


def draw(errors: str, of: Any, shape: tuple[int, int, int], key: list[int]) -> Any:
    """Values [tasks of all runs, variants, seeds]."""
    rng = np.random.default_rng(key)
    noise, seed = rng.normal(size=shape), rng.normal(size=(shape[0], 1, shape[2]))
    if errors == "half":
        logit = special.logit(0.3 + 0.2 * of)[:, None] + 0.3 * (noise + seed)
        return rng.binomial(EXAMPLES, special.expit(logit)) / EXAMPLES
    if errors == "skewed":
        noise = (np.exp(0.5 * noise) - np.exp(0.125)) / np.sqrt(np.exp(0.5) - np.exp(0.25))
    return noise + seed - 20.0 * of[:, None]


def mistakes(values: Any, counted: bool, of: Any, level: float) -> Any:
    """On which tasks, by the package, one of two equal variants is better at `level`."""
    mean, seeds = values.mean(-1), values.shape[-1]
    share = (mean * seeds * EXAMPLES + 0.5) / (seeds * EXAMPLES + 1)
    unit = share * (1 - share) / EXAMPLES if counted else np.ones_like(mean)
    left = values - mean[..., None]
    left -= (left / unit[..., None]).sum(1, keepdims=True) / (1 / unit).sum(1)[:, None, None]
    ratio, freedom = pooled(left, unit)
    freedom = together(left, unit, freedom)
    error = (np.maximum(ratio, 1.0) if counted else ratio)[:, None] * unit / seeds
    first, second = np.triu_indices(len(of), 1)
    first, second = (side[of[first] == of[second]] for side in (first, second))
    t = np.abs(mean[:, first] - mean[:, second]) / np.sqrt(error[:, first] + error[:, second])
    least = stats.studentized_range.ppf(1 - level, len(of), freedom.max()) / np.sqrt(2)
    wrong = np.zeros(len(values), bool)
    for place in np.flatnonzero((t > 0.95 * least).any(1)):
        own: Any = {n: dict(enumerate(runs)) for n, runs in enumerate(values[place].tolist())}
        family = Family(own, scale=Scale(0, 1, EXAMPLES) if counted else Scale(), alpha=level)
        wrong[place] = any(of[better] == of[worse] for better, worse in family.better())
    return wrong


if __name__ == "__main__":
    main()
