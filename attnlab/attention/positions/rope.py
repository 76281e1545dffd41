"""Rotary positions (Su et al. 2021), and their frequencies for sequences longer than those trained on.

    (y_a, y_b) = (x_a cos t - x_b sin t, x_b cos t + x_a sin t)        t = p f_m, f_m = base^(-2m/R), m = 0..R/2-1

for the R/2 pairs (a, b) of the first R channels of every query and key at position p; the other
channels do not change. The product of a query and a key then depends on i - j only. Values are not
rotated. Layouts: "interleaved" pairs channels (2m, 2m+1), as the paper and the original Llama do;
"half" pairs (m, m + R/2), as GPT-NeoX and most released weights do. One is the other with the
channels of queries and keys permuted.

Scalings, with s the factor by which sequences grow, L0 the length trained on:

    none      f_m
    linear    f_m / s                                                            Chen et al. 2023, position interpolation
    ntk       (base s^(R/(R-2)))^(-2m/R)                                         bloc97 2023: f_0 stays, the lowest is divided by s
    yarn      f_m (1 - r_m) + (f_m / s) r_m,  r_m = clip((m - low) / (high - low), 0, 1);  sines and cosines times 0.1 ln s + 1
              low = max(floor(c(fast)), 0),  high = min(ceil(c(slow)), R - 1),  c(n) = R ln(L0 / (2
              pi n)) / (2 ln base)
    llama3    f_m where the wavelength w = 2 pi / f_m < L0 / high, f_m / s where w > L0 / low, else g f_m + (1 - g) f_m / s,
              g = (L0 / w - low) / (high - low)

Axis letters: B batch, H heads, K key heads, T length, D head width, R = share * D. Cost: 3 R FLOPs
for each query and key; no parameters. Frequencies are constants of the compiled program, computed
in float64; s = 1 changes nothing. Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary
Position Embedding", 2021 (arXiv 2104.09864), section 3.2; a share of the channels as in GPT-J and
GPT-NeoX; S. Chen et al., "Extending Context Window of Large Language Models via Positional
Interpolation", 2023 (arXiv 2306.15595); B. Peng et al., "YaRN: Efficient Context Window Extension
of Large Language Models", 2023 (arXiv 2309.00071), sections 3.1 to 3.4, its bounds as in the
authors' code (R - 1 where m < R / 2 would be natural); the released code of Llama 3.1. Where low >=
high, which takes an L0 far beyond the longest wavelength, the ramp is one step wide and keeps every
f_m.
"""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions import SCALINGS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.config.registry import Part, made
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import inner_dtype, widened


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


Layout = Literal["interleaved", "half"]


class Rope(PositionScheme):
    """Queries and keys rotated by angles proportional to their position.

    Attributes:
      layout: which channels make a pair, "interleaved" (the paper) or "half".
      share: the share of the head width that is rotated, its first channels; above 0, at most 1.
      base: the ratio of the longest to the shortest wavelength, nearly; 10000 in the paper.
      scaling: how frequencies change for sequences longer than those trained on.

    Card: rotary; Su et al., RoFormer, 2021; time T D.
    """

    layout: Layout = "interleaved"
    share: float = 1.0
    base: float = 10000.0
    scaling: Part = "none"

    parts = {"scaling": SCALINGS}
    hooks = frozenset({"query_key"})

    def setup(self) -> None:
        """Checks that `share` is in (0, 1] and `base` above 1 (raises UserError if not), and
        creates the scaling of frequencies.
        """
        if not 0.0 < self.share <= 1.0:
            raise UserError(
                f"position scheme rope: share={self.share}, must be above 0 and at most 1"
            )
        if self.base <= 1.0:
            raise UserError(f"position scheme rope: base={self.base}, must be above 1")
        self.scaled: Unscaled = made(SCALINGS, self.scaling)()

    def of_query(self, q: jax.Array, i: jax.Array) -> jax.Array:
        """See `PositionScheme.of_query`: q turned by its position."""
        return self.rotate(q, i)

    def of_key(self, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `PositionScheme.of_key`: k turned by its position."""
        return self.rotate(k, j)

    def rotate(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Rotates the first R channels of x [B,n,T,D] in pairs by the angles of positions [T] or
        [B,T] and multiplies them by the temperature of the scaling (mostly 1), and leaves the other
        channels as they are. Angles, sines and products in float32, the result in the dtype of x.
        """
        count = self.channels(x.shape[-1])
        frequencies = jnp.asarray(self.scaled.frequencies(self.base, count), inner_dtype(x))
        angle = positions.astype(frequencies.dtype)[..., None] * frequencies
        angle = angle[:, None] if positions.ndim == 2 else angle  # the same for all heads
        part = rotated(x[..., :count], angle, self.layout, self.scaled.temperature)
        return jnp.concatenate([part, x[..., count:]], axis=-1)

    def channels(self, width: int) -> int:
        """Computes how many channels R of a head of this width are rotated, `share` of it rounded;
        raises UserError if R is odd or 0.
        """
        count = round(self.share * width)
        if count % 2 or not count:
            near = " or ".join(str(n) for n in (count - 1, count + 1) if n > 1)
            raise UserError(
                f"position scheme rope: share={self.share} of a head width of {width} is {count},"
                f" but channels turn in pairs; choose share, width and heads so that it is {near or 2}"
            )
        return count


def rotated(
    x: jax.Array, angle: jax.Array, layout: Layout = "interleaved", factor: float = 1.0
) -> jax.Array:
    """Rotates pairs of channels of x [...,T,R], paired as `layout` says, by angles broadcastable to
    [...,T,R/2], and multiplies the result by `factor`. Products in float32, the result in the dtype
    of x.
    """
    count = x.shape[-1]
    cosine, sine = (factor * wave for wave in (jnp.cos(angle), jnp.sin(angle)))
    shape, axis = ((count // 2, 2), -1) if layout == "interleaved" else ((2, count // 2), -2)
    a, b = jnp.unstack(widened(x).reshape(*x.shape[:-1], *shape), axis=axis)
    pairs = jnp.stack([a * cosine - b * sine, b * cosine + a * sine], axis=axis)
    return pairs.reshape(x.shape).astype(x.dtype)
