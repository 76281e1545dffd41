"""Axes: from numbers to places in a picture, and ticks."""

import dataclasses
import itertools
import math
from collections.abc import Iterable

from attnlab.pages.tables import prefix_of

WIDE = 20.0  # from this ratio of the largest to the smallest number on an axis is logarithmic
_EDGE = 0.04  # the share of an axis that is left free at each end


@dataclasses.dataclass(frozen=True)
class Scale:
    """One axis.

    Attributes:
      low, high: the numbers at its ends, low < high.
      begin, end: their places; `end` may be the smaller one, as on a vertical axis.
      log: equal ratios, not differences, are equal lengths.
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    @classmethod
    def over(
        cls, values: Iterable[float], begin: float, end: float, *, log: bool | None = None
    ) -> "Scale":
        """Returns an axis from position `begin` to `end` of the picture that shows all `values` (0
        to 1 if there are none) with some space beside them; it is logarithmic if `log` (None: if
        largest / smallest is at least `WIDE`) and all values are above 0.

        Args:
          values: finite; without any the axis goes from 0 to 1.
          begin, end: as in the class.
          log: None: logarithmic if all values are above 0 and the largest is `WIDE` times the
            smallest.
        """
        numbers = list(values) or [0.0, 1.0]
        low, high = min(numbers), max(numbers)
        log = low > 0 and (high / low >= WIDE if log is None else log)
        if log:
            room = (high / low) ** _EDGE if high > low else 1.1
            return cls(low / room, high * room, begin, end, log=True)
        room = (high - low) * _EDGE or abs(high) * 0.1 or 0.5
        return cls(low - room, high + room, begin, end)

    def __call__(self, value: float) -> float:
        """Returns the position of a number along the axis, between `begin` and `end` if it is
        within the axis.
        """
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = map(math.log, (low, high, at))
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)

    def clipped(self, value: float) -> float:
        """The place of a number; for a number beyond the axis the nearer end."""
        return self(min(max(value, self.low), self.high))

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Returns the ticks of the axis, about `most` at most, as pairs of a round number and its
        text.
        """
        if self.log and self.high / self.low >= 6:
            return [(value, label(value, value)) for value in self._powers(most)]
        values = self._steps(most)
        apart = min((after - before for before, after in itertools.pairwise(values)), default=0.0)
        return [(value, label(value, apart)) for value in values]

    def _steps(self, most: int) -> list[float]:
        """Returns all multiples of a step between the ends of a linear axis; the step is the
        smallest 1, 2 or 5 times a power of ten that gives about `most` multiples or fewer.
        """
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(size * power for size in (1, 2, 5, 10) if size * power >= least)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]

    def _powers(self, most: int) -> list[float]:
        """Returns the numbers at which a logarithmic axis has ticks, at most `most`: 1, 2 and 5 (or
        1 and 3) times powers of ten, powers of ten alone, or every k-th of them.
        """
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        alone = (((1,), step) for step in range(1, last - first + 2))
        for leaders, every in (((1, 2, 5), 1), ((1, 3), 1), *alone):
            values = [
                leader * 10.0**power
                for power in range(first, last + 1)
                if power % every == 0
                for leader in leaders
            ]
            values = [value for value in values if self.low <= value <= self.high]
            if len(values) <= most:
                return values
        return []


def label(value: float, step: float) -> str:
    """Returns the text of the number `value` at a tick with enough digits to distinguish it from a
    number `step` away, a decimal prefix (such as k or M) from 10,000 on, and an exponent below
    0.001.
    """
    size = max(abs(value), abs(step))
    limit, prefix = prefix_of(size) if size >= 1e4 else (1.0, "")
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = min(6, max(0, math.ceil(-math.log10(abs(step) / limit) - 1e-9))) if step else 3
    return f"{value / limit:,.{decimals}f}{prefix}" if abs(value) > 0 else "0"
