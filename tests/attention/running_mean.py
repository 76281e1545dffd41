"""A mixer that is no attention: causal, and with a state of one size. `test_mixer.py` puts it
through what every mixer promises, as it does with one of somebody's own (`--mechanism`).
"""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.mixer import Mixer
from attnlab.attention.protocol import Capabilities
from attnlab.attention.view import CAUSAL, View
from attnlab.layers.cards import Card
from attnlab.layers.dense import Dense, inner_dtype, widened

SETTINGS: list[dict[str, Any]] = [{}]
NOTHING = Capabilities(
    roles=frozenset({"self"}),
    directions=frozenset({"causal"}),
    dense=False,
    maps="none",
    state="constant",
)


@flax.struct.dataclass
class Sums:
    """The sum [B,d] of the values so far, and how many there were [B]; in the inner precision."""

    total: jax.Array
    count: jax.Array


class RunningMean(Mixer):
    """y_t = (mean of the real x_s with s <= t) W; zeros before the first."""

    capabilities = NOTHING
    card = Card("means", 2026, "the tests of attnlab", "T d^2", "d")

    def setup(self) -> None:
        self.out = Dense(self.width, use_bias=False)

    def begin(self, rows: int, room: int, dtype: Any) -> Sums:
        """See `Mixer.begin`."""
        kind = inner_dtype(jnp.zeros((), dtype))
        return Sums(jnp.zeros((rows, self.width), kind), jnp.zeros(rows, kind))

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Sums]:
        """See `Mixer.mix`."""
        state = self.begin(len(x), 0, x.dtype) if state is None else state
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        kept = jnp.where(real[..., None], widened(x), 0.0)
        totals = state.total[:, None] + jnp.cumsum(kept, axis=1)
        counts = state.count[:, None] + jnp.cumsum(real, axis=1, dtype=kept.dtype)
        means = (totals / jnp.maximum(counts, 1.0)[..., None]).astype(x.dtype)
        return self.out(means), dataclasses.replace(
            state,
            total=state.total + kept.sum(axis=1),
            count=state.count + real.sum(axis=1, dtype=kept.dtype),
        )


def oracle(params: Any, config: dict[str, Any], x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The means computed token by token, y [B,T,d] in float64."""
    result = np.zeros(x.shape)
    for b, t in np.ndindex(x.shape[:2]):
        read = [x[b, s] for s in range(t + 1) if valid[b, s]]
        result[b, t] = (np.mean(read, axis=0) if read else 0.0) @ params["out"]["kernel"]
    return result
