"""The scale of a measure: its bounds, how many test examples it counts, and its rounding."""

import dataclasses
import math
from collections.abc import Iterable

Interval = tuple[float, float]

_NEAR = 0.5  # of the way to a bound: a longer reach is cut there, where no examples are counted
# relative to the scale of the measure: differences up to this are rounding
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scale of a measure.

    Attributes:
      low: the least value it can have; None if unbounded.
      high: the largest value it can have; None if unbounded.
      count: of how many test examples it is a share, each right or wrong; None if it is not a
        count (with `low` and `high` only).
    """

    low: float | None = None
    high: float | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        """Checks that `low` is below `high`, and that a `count` is at least 1 and has both bounds;
        raises ValueError otherwise.
        """
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        if self.count is not None and (self.count < 1 or not self.bounded):
            raise ValueError(
                f"count {self.count}: a share needs at least one example, and both bounds"
            )

    @property
    def bounded(self) -> bool:
        """Whether it has both bounds."""
        return self.low is not None and self.high is not None

    @property
    def width(self) -> float:
        """high - low; 1 where it is unbounded."""
        return self.high - self.low if self.low is not None and self.high is not None else 1.0

    def rounding(self, values: Iterable[float]) -> float:
        """The largest difference that is a tie: `ROUNDING` of the largest value or bound."""
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        return ROUNDING * max((abs(value) for value in (*values, *bounds)), default=0.0)

    def share(self, mean: float, runs: int) -> float:
        """Returns the `mean` of `runs` runs as a share of the way from `low` to `high`; where
        examples are counted, half a success and half a failure are added, so that it is in (0, 1).
        """
        assert self.low is not None and self.high is not None
        plain = (mean - self.low) / (self.high - self.low)
        if self.count is None:
            return plain
        return (plain * runs * self.count + 0.5) / (runs * self.count + 1)

    def unit(self, mean: float, runs: int) -> float:
        """Returns the unit in which variances of runs with this mean are compared: the variance of
        drawing `count` test examples; 1 where nothing is counted.
        """
        if self.count is None:
            return 1.0
        share = self.share(mean, runs)
        return share * (1 - share) / self.count * self.width**2

    def around(self, mean: float, runs: int, reach: float) -> Interval:
        """Returns the interval mean -+ `reach`; for a bounded measure Wilson's (1927), or, where no
        examples are counted and a bound is near, the interval cut at the bounds.

        Wilson's has all p that are no further from the mean than the reach would be at p, with a
        variance that goes with p(1 - p).
        """
        if self.low is None or self.high is None:
            return mean - reach, mean + reach
        # so near a bound no variance is known to go with p(1 - p)
        if self.count is None and reach > _NEAR * min(mean - self.low, self.high - mean):
            return max(self.low, mean - reach), min(self.high, mean + reach)
        share, plain = self.share(mean, runs), (mean - self.low) / self.width
        if not 0 < share < 1:
            return mean, mean
        square = (reach / self.width) ** 2 / (share * (1 - share))
        half = math.sqrt(square * plain * (1 - plain) + square**2 / 4)
        low, high = ((plain + square / 2 + side * half) / (1 + square) for side in (-1, 1))
        low, high = min(max(0.0, low), plain), max(min(1.0, high), plain)
        return self.low + self.width * low, self.low + self.width * high

    def clip(self, interval: Interval, reach: float) -> Interval:
        """Returns an interval of a weighted sum of means, for weights that sum to 0, cut to what
        the sum can be; `reach` is the sum of the positive weights.
        """
        if not self.bounded:
            return interval
        most = self.width * reach
        return min(max(interval[0], -most), most), min(max(interval[1], -most), most)


UNBOUNDED = Scale()
