"""What mixers of whole texts share: every token sees every other, so that there is no reading piece
by piece, and no state.
"""

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Capabilities, Mixer, no_rule
from attnlab.attention.scores.protocol import NEVER
from attnlab.attention.view import EVERYTHING, View
from attnlab.errors import UserError
from attnlab.layers.dense import widened

WHOLE = Capabilities(
    roles=frozenset({"self"}),
    directions=frozenset({"bidirectional"}),
    dense=False,
    cache=False,
)
"""The capabilities of a mixer of whole texts; its equations have weights."""


class WholeText(Mixer):
    """Base of mixers of whole texts; a subclass implements `mix_text`."""

    capabilities = WHOLE

    def mix_text(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """Computes y [B,T,d] of x [B,T,d]; `real` [B,T] is False at padding, whose y is set to 0
        later.
        """
        raise NotImplementedError

    def begin(self, rows: int, room: int, dtype: Any) -> Any:
        """Raises UserError always, since there is no state to begin with: see `Mixer.begin`.

        Raises:
          UserError: always.
        """
        raise UserError(
            f"{type(self).__name__} mixes whole texts, it cannot read one piece by piece; choose"
            " 'multihead' or another mixer that is causal"
        )

    def mix(
        self, x: jax.Array, view: View = EVERYTHING, state: Any = None
    ) -> tuple[jax.Array, None]:
        """Mixes whole texts x [B,T,d] by `mix_text`; returns a pair of y [B,T,d], 0 at padding
        (where `view.valid` is False), and None, since there is no state; raises UserError for a
        rule or segments. See `Mixer.mix`.

        Raises:
          UserError: the view has a rule, or several texts share a row.
        """
        no_rule(self, view)
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        return jnp.where(real[..., None], self.mix_text(x, real), 0), None


def weights(q: jax.Array, k: jax.Array, mask: jax.Array) -> jax.Array:
    """Computes softmax(q k^T) [...,n,t] float32 of q [...,n,D] and k [...,t,D] over the keys where
    `mask`, broadcastable to that, is True; 0 elsewhere.
    """
    scores = jnp.where(mask, widened(q @ k.swapaxes(-1, -2)), NEVER)
    return jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0)
