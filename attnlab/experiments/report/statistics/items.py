"""Uncertainty from the choice of test examples: two systems compared on the same examples, with a
number for each example.

Seeds measure the variation of training; the two methods here measure the variation of test sets.
Both average the score over seeds and are deterministic. Sources: Koehn (2004) for the paired
bootstrap, Noreen (1989) for approximate randomisation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from attnlab.experiments.report.statistics.scale import Interval

RESAMPLES = 2000
_CHUNK = 1 << 22  # numbers held at a time

Score = Callable[[Any, int], float]
"""The score of a test set from the sum [statistics] over its examples and their number."""


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A difference of two systems over test examples.

    Attributes:
      difference: of the scores, the first minus the second, mean over seeds.
      interval: of it over test sets, percentiles of the paired bootstrap.
      p: two-sided, by approximate randomisation: how often a random exchange of the systems on
        examples gives as large a difference.
      items: test examples.
      resamples: of each kind.
      seeds: over which the scores are averaged.
    """

    difference: float
    interval: Interval
    p: float
    items: int
    resamples: int
    seeds: int


def mean_score(total: Any, items: int) -> float:
    """The mean of the first statistic."""
    return float(total[0]) / items


def compare(
    system: Any,
    other: Any,
    score: Score = mean_score,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> Sampled:
    """Returns the `Sampled` of two systems' numbers [seeds,items] (or [seeds,items,statistics]) on
    the same examples: difference of scores, paired bootstrap interval, p by randomisation.

    Args:
      system, other: [seeds, items] numbers, or [seeds, items, statistics] whose sums `score` takes;
        seeds and items the same, in one order.
      score: of a test set.
      resamples: how often to draw test sets, and exchanges.
      level, seed: of the interval, and of the draws.

    Raises:
      ValueError: shapes differ or there is no example.
    """
    import numpy as np

    first, second = (np.asarray(each, float) for each in (system, other))
    if first.shape != second.shape or not first.size:
        raise ValueError(
            f"{first.shape} and {second.shape}: the systems need the same seeds and the same test"
            " examples, at least one"
        )
    first, second = (each.reshape(*each.shape[:2], -1) for each in (first, second))
    rng = np.random.default_rng(seed)
    items = first.shape[1]

    def ahead(sums: Any, others: Any) -> Any:
        return _scores(sums, score, items) - _scores(others, score, items)

    seen = ahead(first.sum(1)[None], second.sum(1)[None])[0]
    drawn, exchanged = [], []
    for size in _chunks(resamples, items):
        counts = rng.multinomial(items, np.full(items, 1 / items), size=size).astype(float)
        drawn.append(ahead(_weighted(counts, first), _weighted(counts, second)))
    for size in _chunks(resamples, items):
        mask = rng.integers(0, 2, (size, items)).astype(float)
        mixed = _weighted(mask, first) + _weighted(1 - mask, second)
        exchanged.append(ahead(mixed, _weighted(mask, second) + _weighted(1 - mask, first)))
    low, high = np.nanquantile(np.concatenate(drawn), [(1 - level) / 2, (1 + level) / 2])
    # a score that cannot be computed counts against it
    as_large = ~(np.abs(np.concatenate(exchanged)) < abs(seen) * (1 - 1e-9))
    p = float((1 + as_large.sum()) / (1 + resamples))
    return Sampled(float(seen), (float(low), float(high)), p, items, resamples, len(first))


def _chunks(resamples: int, items: int) -> list[int]:
    """Returns a list of numbers that sum to `resamples`, how many to hold at a time: `_CHUNK` //
    `items` each, at least 1, and the remainder last.
    """
    size = max(1, _CHUNK // items)
    return [min(size, resamples - start) for start in range(0, resamples, size)]


def _weighted(weights: Any, stats: Any) -> Any:
    """Returns weighted sums over items [resamples, seeds, statistics], from `weights` [resamples,
    items] and `stats` [seeds, items, statistics].
    """
    import numpy as np

    return np.stack([weights @ run for run in stats], axis=1)


def _scores(sums: Any, score: Score, items: int) -> Any:
    """Returns the mean over seeds of the scores [resamples], from sums [resamples, seeds,
    statistics].
    """
    import numpy as np

    return np.array([[score(total, items) for total in seeds] for seeds in sums]).mean(-1)
