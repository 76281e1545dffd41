"""Variants of multi-head attention that change what its heads give to one another, or give at all:
talking heads, differential attention, gated attention.

    talking_heads   heads exchange scores before the softmax and weights after it            Shazeer et al. 2020
    differential    the maps of two heads are subtracted: what is common to both cancels     Ye et al. 2025
    gated           each head's output times a sigmoid of the query's input                  Qiu et al. 2025

The class of each has its formula, cost and source. Axis letters: B batch, H heads, Tq queries, Tk keys,
D head width.
"""

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.multihead import MultiHead, MultiHeadMemory
from attnlab.attention.view import View
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, split, widened

EPSILON = 1e-5  # of the norm of differential attention


def identity(key: jax.Array, shape: tuple[int, ...], dtype: Any = float) -> jax.Array:
    """An initializer: the identity matrix of `shape` [n,n]."""
    return jnp.eye(shape[0], shape[1], dtype=dtype)


class TalkingHeads(MultiHead):
    """Multi-head attention with two learned mixes across heads; fields as in `MultiHead`.

        E' = sum_h E_h P_hl        A = softmax(E')        A' = sum_l A_l Q_lm        y = concat_m(A'_m v_m) W_o

    Masks apply after the first mix, so that the mask of one head does not affect another. The rows
    of A' need not sum to one, nor be positive. Cost: multi-head attention, and 2 H^2 FLOPs for each
    pair and mix; all heads' scores are needed at once. Parameters: 2 H^2 more. Source: N. Shazeer,
    Z. Lan, Y. Cheng, N. Ding, L. Hou, "Talking-Heads Attention", 2020 (arXiv 2003.02436), section 3.
    Here both mixes are H x H and start at the identity, where the mechanism is multi-head attention.

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


class Differential(MultiHead):
    """H differences of two maps each; `heads` is the number of maps, 2 H. Other fields as in
    `MultiHead`.

        [q1;q2] = x W_q   [k1;k2] = s W_k   in H pairs of width D;   v = s W_v   in H heads of width 2D;   2 H D = width
        lam = exp(a1 . b1) - exp(a2 . b2) + lam0
        O_h = (softmax(q1 k1^T / sqrt(D)) - lam softmax(q2 k2^T / sqrt(D))) v        y = concat_h((1 - lam0) RMSNorm(O_h)) W_o

    The rows of a map sum to 1 - lam, and entries may be negative. Dropout acts on the difference;
    the paper does not say. Cost: that of multi-head attention with 2 H heads. Parameters: as many,
    but for 4 D numbers in lam and 2 D in the norm. Source: T. Ye, L. Dong, Y. Xia, Y. Sun, Y. Zhu,
    G. Huang, F. Wei, "Differential Transformer", ICLR 2025 (arXiv 2410.05258), section 2.1. As in the
    authors' code neighbouring heads make a pair, and the norm has a learned scale, eps 1e-5, shared
    by the heads.

    Attributes:
      start: lam0, about the start value of lam; the paper has 0.8 - 0.6 exp(-0.3 l) in layer l = 0,
        1, ...

    Card: heads; Ye et al., Differential Transformer, ICLR 2025; time T^2 d + T d^2; state T d;
    path 1; steps 1.
    """

    start: float = 0.2

    kernels = ("auto", "plain")
    sums_to = "any"
    capabilities = dataclasses.replace(MultiHead.capabilities, history=False)

    def setup(self) -> None:
        """Checks that `heads` is even and `key_heads` 0 or equal to it (raises UserError if not),
        and creates the parameters of multi-head attention, four vectors for lambda and the gain of
        the norm.
        """
        super().setup()
        if self.heads % 2 or (self.key_heads and self.key_heads != self.heads):
            raise UserError(
                f"differential: heads={self.heads}, key_heads={self.key_heads}; heads come in"
                " pairs, so heads must be even and key_heads 0"
            )
        size = self.size()
        tenth = nn.initializers.normal(0.1)
        self.a1, self.b1, self.a2, self.b2 = (
            self.param(name, tenth, (size,)) for name in ("a1", "b1", "a2", "b2")
        )
        self.gain = self.param("gain", nn.initializers.ones, (2 * size,))

    def split_values(self, x: jax.Array) -> jax.Array:
        """See `MultiHead.split_values`: [B,T,2*H*D] to [B,H,T,2D]."""
        return split(x, self.heads // 2)

    def strength(self) -> jax.Array:
        """Computes lam, [] float32, from its four learned vectors."""
        first, second = (
            jnp.vdot(widened(a), widened(b)) for a, b in ((self.a1, self.b1), (self.a2, self.b2))
        )
        return jnp.exp(first) - jnp.exp(second) + self.start

    def look(
        self, query: jax.Array, memory: MultiHeadMemory, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] on a memory as multi-head attention
        does, with H/2 maps of weights, the weights of head 2h less lambda times the weights of head
        2h + 1. See `MultiHead.look`.
        """
        look = super().look(query, memory, view, history)

        def align(scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
            weights = self.align(scores, mask, view)
            return weights[:, 0::2] - self.strength() * weights[:, 1::2]

        return look.replace(align=align)

    def join(self, context: jax.Array, query: jax.Array) -> jax.Array:
        """Normalises the context [B,H/2,Tq,2D] of each pair of heads by its root mean square,
        multiplies it by the gain and by 1 - `start`, and returns the pairs side by side, [B,Tq,H
        D]. See `MultiHead.join`.
        """
        wide = widened(context)
        normed = (
            wide
            * jax.lax.rsqrt((wide**2).mean(axis=-1, keepdims=True) + EPSILON)
            * widened(self.gain)
        )
        return super().join(((1.0 - self.start) * normed).astype(context.dtype), query)


class Gated(MultiHead):
    """Multi-head attention with a gate for every output of a head, or for every head; other fields
    as in `MultiHead`.

        y = concat_h(O_h * sigmoid(x W_g)) W_o        O_h the multi-head outputs, x the query

    A gate near zero turns a head off, which a softmax cannot do. A gate starts at about one half.
    Cost: one more projection of the query. Parameters: width^2 more (element-wise) or width H
    (head-wise). Source: Z. Qiu et al., "Gated Attention for Large Language Models: Non-linearity,
    Sparsity, and Attention-Sink-Free", 2025, its best position (G1). No bias, as there.

    Attributes:
      gate: "element" (one for each number of its output) or "head" (one for each head).

    Card: heads; Qiu et al., Gated Attention for LLMs, 2025; time T^2 d + T d^2; state T d K / H;
    path 1; steps 1.
    """

    gate: Literal["element", "head"] = "element"

    def setup(self) -> None:
        super().setup()
        size = self.size() if self.gate == "element" else 1
        self.w_gate = Dense(self.heads * size, use_bias=False)

    def join(self, context: jax.Array, query: jax.Array) -> jax.Array:
        """See `MultiHead.join`."""
        gates = jax.nn.sigmoid(self.w_gate(query))
        if self.gate == "element":
            return super().join(context, query) * gates
        return super().join(context * gates.transpose(0, 2, 1)[..., None], query)
