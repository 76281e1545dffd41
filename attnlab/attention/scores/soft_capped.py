"""Logit soft-capping (Gemma 2, 2024) of any other score: e_ij = c tanh(s_ij / c), s the score
inside.

The cap comes after the scale and before position biases and the mask; otherwise the -1e30 of a mask
would become -c. For the same reason a score of `NEVER` (positions beyond the limit of the location
score) is not capped. The gradient is that of s times 1 - tanh^2(s / c); for |s| well below c
nothing changes. Cost: that of the score inside and one tanh for each pair; no longer an inner
product, so kernels for dot products do not apply. Parameters: those of the score inside. Source:
Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024 (arXiv 2408.00118),
section 2: c = 50 for attention.
"""

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.scores import SCORES
from attnlab.attention.scores.protocol import NEVER, Score, above_zero
from attnlab.config.registry import Part, made


def _of_inside(name: str) -> Any:
    """Returns a property of `SoftCapped`, the attribute `name` of the score inside: read it from an
    instance, which knows that score, not from the class.
    """
    return property(lambda self: getattr(made(SCORES, self.score)(parent=None), name))


class SoftCapped(Score):
    """e_ij = cap tanh(s_ij / cap), s another score.

    Attributes:
      score: the score inside.
      cap: bound of the scores, c.

    Card: capped; Gemma Team, Gemma 2, 2024; time T^2 D; state T D.
    """

    score: Part = "scaled_dot"
    cap: float = 50.0

    parts = {"score": SCORES}

    def setup(self) -> None:
        above_zero("soft_capped", "cap", self.cap)
        self.inside = made(SCORES, self.score)(name="score")

    rotary = _of_inside("rotary")
    places = _of_inside("places")
    looks_back = _of_inside("looks_back")

    def initial_history(self, keys: jax.Array, heads: int) -> jax.Array:
        """That of the score inside."""
        return self.inside.initial_history(keys, heads)

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """That of the score inside."""
        return self.inside.after(past, weights, keys)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        return self.inside.of_query(q, key_width)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`."""
        return self.inside.of_key(k)

    def scale(self, width: int) -> float:
        """That of the score inside."""
        return self.inside.scale(width)

    def pairs(
        self, q: jax.Array, k: jax.Array, j: jax.Array, past: jax.Array | None = None
    ) -> jax.Array:
        """Computes the scores [B,H,Tq,Tk] of the score inside for queries q and keys k at positions
        j (with the earlier weights `past`, if given), capped to cap tanh(score / cap); those near
        `NEVER` stay as they are. See `Score.pairs`.
        """
        scores = self.inside.pairs(q, k, j, *(() if past is None else (past,)))
        return jnp.where(scores > 0.5 * NEVER, self.cap * jnp.tanh(scores / self.cap), scores)
