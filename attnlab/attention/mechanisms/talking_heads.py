"""Talking-heads attention (Shazeer et al. 2020): heads exchange scores before the softmax and
weights after it.

    E' = sum_h E_h P_hl        A = softmax(E')        A' = sum_l A_l Q_lm        y = concat_m(A'_m v_m) W_o

Masks apply after the first mix, so that the mask of one head does not affect another. The rows of
A' need not sum to one, nor be positive. Cost: multi-head attention, and 2 H^2 FLOPs for each pair
and mix; all heads' scores are needed at once. Parameters: 2 H^2 more. Source: N. Shazeer, Z. Lan,
Y. Cheng, N. Ding, L. Hou, "Talking-Heads Attention", 2020 (arXiv 2003.02436), section 3. Here both
mixes are H x H and start at the identity, where the mechanism is multi-head attention.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.multihead import MultiHead, MultiHeadMemory
from attnlab.attention.view import View
from attnlab.layers.precision import widened


def identity(key: jax.Array, shape: tuple[int, ...], dtype: Any = float) -> jax.Array:
    """An initializer: the identity matrix of `shape` [n,n]."""
    return jnp.eye(shape[0], shape[1], dtype=dtype)


class TalkingHeads(MultiHead):
    """Multi-head attention with two learned mixes across heads; fields as in `MultiHead`.

    Card: heads; Shazeer et al., Talking-Heads Attention, 2020; time T^2 (d + H^2) + T d^2;
    state T d K / H; path 1; steps 1.
    """

    kernels = ("auto", "plain")
    sums_to = "any"
    capabilities = dataclasses.replace(MultiHead.capabilities, history=False)

    def setup(self) -> None:
        super().setup()
        self.mix_scores = self.param("mix_scores", identity, (self.heads, self.heads))
        self.mix_weights = self.param("mix_weights", identity, (self.heads, self.heads))

    def look(
        self, query: jax.Array, memory: MultiHeadMemory, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] on a memory as multi-head attention
        does, with an alignment that mixes the heads by learned matrices: the scores before the
        alignment, the weights after it. See `MultiHead.look`.
        """
        look = super().look(query, memory, view, history)

        def align(scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
            mixed = jnp.einsum("bhqk,hl->blqk", scores, widened(self.mix_scores))
            weights = self.align(mixed, mask, view)
            return jnp.einsum("blqk,lm->bmqk", weights, widened(self.mix_weights))

        return look.replace(align=align)
