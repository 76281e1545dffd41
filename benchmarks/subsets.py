"""How often few seeds find what many seeds have found: every subset of the seeds of a finished
sweep is judged by itself.

    python -m benchmarks.subsets runs/quickstart12 --seeds=3

Truth is what all seeds together say: differences between two variants that they declare (Tukey,
adjusted p below 0.05), and pairs that they do not. Of each pair: in how many percent of the subsets
it is declared the same way round, and the other way round; in brackets the former method (paired t
test of each pair, Holm over all pairs). Pairs that all seeds leave open are told apart: to declare
one of them is no error for certain, but mostly one.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from scipy import stats

from attnlab.experiments.report import Comparison, collect, compare
from attnlab.experiments.report.statistics.family import Family
from attnlab.progress import table

Pair = tuple[str, str]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="the folder of a finished sweep")
    parser.add_argument("--seeds", type=int, default=3, help="of a subset")
    chosen = parser.parse_args()
    comparison = compare(collect(chosen.directory))
    every = sorted(comparison.rows[0].values)
    subsets = list(itertools.combinations(every, chosen.seeds))
    truth = declared(comparison, every)
    verdicts = [(declared(comparison, subset), formerly(comparison, subset)) for subset in subsets]
    rows = [
        (" - ".join(pair), f"{way:+d}" if way else "open", *_cells(pair, truth, verdicts))
        for pair, way in truth.items()
    ]
    table(
        f"{len(subsets)} subsets of {chosen.seeds} of {len(every)} seeds",
        ("pair", "all seeds", "found", "the other way round"),
        rows,
    )


def _cells(
    pair: Pair,
    truth: Mapping[Pair, int],
    verdicts: Sequence[tuple[Mapping[Pair, int], Mapping[Pair, int]]],
) -> tuple[str, str]:
    """Percent of subsets that agree with all seeds, and that say the opposite; of a pair left open:
    that declare it, either way.
    """
    way = truth[pair]

    def share(method: int, wanted: set[int]) -> float:
        return 100 * sum(verdict[method][pair] in wanted for verdict in verdicts) / len(verdicts)

    if not way:
        return "", f"{share(0, {1, -1}):.0f} ({share(1, {1, -1}):.0f})"
    return tuple(f"{share(0, {side}):.0f} ({share(1, {side}):.0f})" for side in (way, -way))  # type: ignore[return-value]


def declared(comparison: Comparison, seeds: Sequence[int]) -> dict[Pair, int]:
    """The sign of every difference that these seeds declare, 0 for one they leave open."""
    values = {row.name: {seed: row.values[seed] for seed in seeds} for row in comparison.rows}
    pairs = Family(values, comparison.basis.mode, comparison.basis.scale).pairs()
    return {
        pair: _sign(difference.mean) if difference.p is not None and difference.p < 0.05 else 0
        for pair, difference in pairs.items()
    }


def formerly(comparison: Comparison, seeds: Sequence[int]) -> dict[Pair, int]:
    """The same by paired t tests and Holm."""
    pairs = list(itertools.combinations(comparison.rows, 2))
    differences = [
        [first.values[seed] - second.values[seed] for seed in seeds] for first, second in pairs
    ]
    p = [
        float(stats.ttest_1samp(each, 0.0).pvalue) if max(each) > min(each) else 1.0
        for each in differences
    ]
    order, highest, signs = sorted(range(len(p)), key=lambda place: p[place]), 0.0, {}
    for rank, place in enumerate(order):
        highest = max(highest, (len(p) - rank) * p[place])
        first, second = pairs[place]
        signs[first.name, second.name] = _sign(sum(differences[place])) if highest < 0.05 else 0
    return signs


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


if __name__ == "__main__":
    main()
