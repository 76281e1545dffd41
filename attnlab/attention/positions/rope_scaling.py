"""Frequencies of rotary positions for sequences longer than those trained on.

With f_m = base^(-2m/R), m = 0..R/2-1, R turned channels, s the factor by which sequences grow, L0
the length trained on:

    none      f_m
    linear    f_m / s                                                            Chen et al. 2023, position interpolation
    ntk       (base s^(R/(R-2)))^(-2m/R)                                         bloc97 2023: f_0 stays, the lowest is divided by s
    yarn      f_m (1 - r_m) + (f_m / s) r_m,  r_m = clip((m - low) / (high - low), 0, 1);  sines and cosines times 0.1 ln s + 1
              low = max(floor(c(fast)), 0),  high = min(ceil(c(slow)), R - 1),  c(n) = R ln(L0 / (2
              pi n)) / (2 ln base)
    llama3    f_m where the wavelength w = 2 pi / f_m < L0 / high, f_m / s where w > L0 / low, else g f_m + (1 - g) f_m / s,
              g = (L0 / w - low) / (high - low)

Cost: nothing in the compiled program; frequencies are constants, computed in float64. s = 1 changes
nothing. Source: S. Chen et al., "Extending Context Window of Large Language Models via Positional
Interpolation", 2023 (arXiv 2306.15595); B. Peng et al., "YaRN: Efficient Context Window Extension
of Large Language Models", 2023 (arXiv 2309.00071), sections 3.1 to 3.4, its bounds as in the
authors' code (R - 1 where m < R / 2 would be natural); the released code of Llama 3.1. Where low >=
high, which takes an L0 far beyond the longest wavelength, the ramp is one step wide and keeps every
f_m.
"""

import dataclasses
import math

import numpy as np

from attnlab.errors import UserError, at_least


@dataclasses.dataclass(frozen=True)
class Unscaled:
    """Frequencies as they are; the base of the others."""

    def frequencies(self, base: float, width: int) -> np.ndarray:
        """Angles per position, float64 [R/2], of `width` = R turned channels."""
        return np.asarray(base ** -(np.arange(0, width, 2) / width))

    @property
    def temperature(self) -> float:
        """The factor of sines and cosines; scores are multiplied by its square."""
        return 1.0


@dataclasses.dataclass(frozen=True)
class Linear(Unscaled):
    """All frequencies divided by the factor.

    Attributes:
      factor: s, at least 1.
    """

    factor: float = 4.0

    def __post_init__(self) -> None:
        """Checks that `factor` is at least 1; raises UserError if not."""
        at_least(1, f"rope scaling {type(self).__name__.lower()}", factor=self.factor)

    def frequencies(self, base: float, width: int) -> np.ndarray:
        """See `Unscaled.frequencies`."""
        return super().frequencies(base, width) / self.factor


@dataclasses.dataclass(frozen=True)
class Ntk(Linear):
    """A longer base: the highest frequency stays, the lowest is divided by the factor."""

    def frequencies(self, base: float, width: int) -> np.ndarray:
        """Returns the angles per position, float64 [R/2], of `width` = R turned channels with the
        rotary base `base`, divided by powers of the factor that rise from 0 for the first pair of
        channels to 1 for the last. See `Unscaled.frequencies`.
        """
        return Unscaled.frequencies(self, base, width) * self.factor ** -(
            np.arange(0, width, 2) / max(width - 2, 1)
        )


@dataclasses.dataclass(frozen=True)
class Yarn(Linear):
    """High frequencies stay, low ones are divided by the factor, a ramp between; sharper scores.

    Attributes:
      length: L0, the length trained on.
      fast, slow: with at least `fast` turns within L0 a frequency stays; with at most `slow` turns
        it is divided by s.
    """

    length: int = 2048
    fast: float = 32.0
    slow: float = 1.0

    def __post_init__(self) -> None:
        """Checks that `factor` is at least 1, that 0 < `slow` < `fast` and that `length` is at
        least 2 pi slow; raises UserError if not.
        """
        super().__post_init__()
        _ordered("yarn", self.length, slow=self.slow, fast=self.fast)
        least = math.ceil(2 * math.pi * self.slow)
        if self.length < least:
            raise UserError(
                f"rope scaling yarn: length={self.length} with slow={self.slow}, must be at least"
                f" {least}"
            )

    def frequencies(self, base: float, width: int) -> np.ndarray:
        """Returns the angles per position, float64 [R/2], of `width` = R turned channels with the
        rotary base `base`: unchanged for pairs of channels up to the lower of the `bounds`, divided
        by the factor from the upper on, a linear mix between. See `Unscaled.frequencies`.
        """
        low, high = self.bounds(base, width)
        ramp = np.clip((np.arange(width // 2) - low) / max(high - low, 1), 0.0, 1.0)
        unscaled = Unscaled.frequencies(self, base, width)
        return unscaled * (1.0 - ramp) + unscaled / self.factor * ramp

    def bounds(self, base: float, width: int) -> tuple[int, int]:
        """Returns the numbers (low, high) of the channel pairs, of `width` channels with the rotary
        base `base`, between which frequencies change gradually from unscaled to scaled: the pairs
        that turn `fast` and `slow` times in `length` positions.
        """
        low, high = (
            width * math.log(self.length / (2 * math.pi * turns)) / (2 * math.log(base))
            for turns in (self.fast, self.slow)
        )
        return max(math.floor(low), 0), min(math.ceil(high), width - 1)

    @property
    def temperature(self) -> float:
        """0.1 ln s + 1."""
        return 0.1 * math.log(self.factor) + 1.0


@dataclasses.dataclass(frozen=True)
class Llama3(Linear):
    """Short wavelengths stay, long ones are divided by the factor, a mix between.

    Attributes:
      length: L0, the length trained on.
      low, high: L0 / low and L0 / high bound the wavelengths between.
    """

    factor: float = 8.0
    length: int = 8192
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ordered("llama3", self.length, low=self.low, high=self.high)

    def frequencies(self, base: float, width: int) -> np.ndarray:
        """Returns the angles per position, float64 [R/2], of `width` = R turned channels with the
        rotary base `base`: unchanged for those that turn `high` times or more in `length`
        positions, divided by the factor for `low` times or fewer, a linear mix between. See
        `Unscaled.frequencies`.
        """
        unscaled = Unscaled.frequencies(self, base, width)
        turns = self.length * unscaled / (2 * math.pi)  # L0 / w
        ramp = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return ramp * unscaled + (1.0 - ramp) * unscaled / self.factor


def _ordered(name: str, length: int, **turns: float) -> None:
    """Checks that `length` is at least 1 and that, of the two numbers that `turns` gives by field
    name, the first is above 0 and below the second; raises UserError, naming the rope scaling
    `name`, if not.
    """
    (low, low_turns), (high, high_turns) = turns.items()
    at_least(1, f"rope scaling {name}", length=length)
    if not 0.0 < low_turns < high_turns:
        raise UserError(
            f"rope scaling {name}: {low}={low_turns} must be above 0 and below {high}={high_turns}"
        )
