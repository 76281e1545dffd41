"""cosFormer (Qin et al. 2022): weights relu(q) . relu(k), times a cosine of the distance, which is a
product of features.

    a_ij = (relu(q_i) . relu(k_j)) cos(pi/2 (i - j) / L)
         = phi(q_i) . phi(k_j),      phi(x_i) = [relu(x_i) cos(pi i / 2 L) ; relu(x_i) sin(pi i / 2 L)]
    y_i  = sum_j a_ij v_j / sum_j a_ij                          (`kernelised`)

L is at least the longest sequence, so that no weight is negative; longer ones are refused. A query
whose weights sum to less than 10^-6 is divided by that, as in the authors' code; where all are 0, y
is 0. Cost: 8 T D d FLOPs for the sums, without a rule. State: 2 D (D + 1) H numbers, M = 2 D.
Parameters: 4 d^2. Source: Z. Qin et al., "cosFormer: Rethinking Softmax in Attention", ICLR 2022
(arXiv 2202.08791), equations 8-11. There L is the longest length of the batch; here a field, so
that texts do not depend on others beside them.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.cards import Card
from attnlab.errors import UserError
from attnlab.mixers.kernelised import Kernelised


class CosFormer(Kernelised):
    """H heads of width D = width / H with weights that fall with the distance (Qin et al. 2022).

    Attributes:
      length: L, the longest sequence.
    """

    length: int = 512

    least = 1e-6
    lengths = {"length": "covers"}
    card = Card("features", 2022, "Qin et al., cosFormer, ICLR 2022", "T d D + T d^2", "d D")

    def setup(self) -> None:
        if self.length < 1:
            raise UserError(f"cosformer: length={self.length}, must be at least 1")
        super().setup()

    @nn.nowrap
    def count(self) -> int:
        """See `Kernelised.count`."""
        return 2 * self.size

    @nn.nowrap
    def rows(self) -> Any:
        """See `Attention.rows`: less than one where weights sum to less than `least`."""
        return "at most one"

    def covers(self, tokens: int) -> None:
        """See `Kernelised.covers`: `UserError` for more than `length`."""
        if tokens > self.length:
            raise UserError(
                f"cosformer: length={self.length}, but there are (or may be written) {tokens}"
                f" tokens; take length={tokens} or more"
            )

    def of_query(self, q: jax.Array, i: jax.Array) -> jax.Array:
        """See `Kernelised.of_query`."""
        angle = (jnp.pi / 2 / self.length) * i.astype(q.dtype)
        angle = angle[:, None, :, None] if i.ndim == 2 else angle[:, None]
        x = jax.nn.relu(q)
        return jnp.concatenate([x * jnp.cos(angle), x * jnp.sin(angle)], axis=-1)

    def of_key(self, k: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """See `Kernelised.of_key`."""
        return self.of_query(k, j), None

    @nn.nowrap
    def mapped(self, rows: int) -> int:
        """See `Kernelised.mapped`."""
        return 3 * rows * self.width
