"""Multi-head latent attention (DeepSeek-AI 2024): keys and values are computed from one small
latent per token; a cache keeps only the latents.

    c  = RMSNorm(s W_c)                        [C]      kept          kr = turn(s W_kr)     [R]      kept, one for all heads
    k_h = [c U_h ; kr]      v_h = c V_h        [D+R], [D]
    q_h = [x W_q,h ; turn(x W_qr,h)]           [D+R]                  or x through its own latent
    A_h = softmax(q_h . k_h / sqrt(D + R))     y = concat_h(A_h v_h) W_o

`turn` is the position scheme, rotary in the paper. It acts on R channels only, so U_h can move to
the query: q_h . (c U_h) = (q_h U_h^T) . c. This absorbed form computes no keys or values of heads:
heads attend to the latents, and V_h is applied after the sum. `read` takes the form with fewer
FLOPs for the given lengths; the two are equal up to rounding. Memory for decoding: C + R numbers
per token, against 2 H D of multi-head attention. Source: DeepSeek-AI, "DeepSeek-V2: A Strong,
Economical, and Efficient Mixture-of-Experts Language Model", 2024 (arXiv 2405.04434), section 2.1.
Its displayed equations leave out the norms of the two latents, which every released implementation
has; so does this.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.kernels import KernelName
from attnlab.attention.kernels.plain import AttentionInputs, regroup
from attnlab.attention.mechanisms.heads import HeadsAttention
from attnlab.attention.memories import Memory
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import Capabilities, Tokens, head_width
from attnlab.attention.scores.protocol import inner
from attnlab.attention.view import View
from attnlab.config.registry import Part
from attnlab.errors import at_least
from attnlab.layers.dense import GLOROT, Dense, split

EPSILON = 1e-6


@flax.struct.dataclass
class LatentMemory(Memory):
    """latents [B,1,Tk,C], after their norm; turned [B,1,Tk,R], the keys' shared channels at their
    positions.
    """

    latents: jax.Array
    turned: jax.Array


class Latent(HeadsAttention):
    """H heads of width D, by default width / H, over latents of width C.

    Attributes:
      heads: H; must divide the width, unless `head_width` is given.
      head_width: D; 0 for width / H.
      latent: C.
      rotary: R, channels of queries and keys with positions; 0 for none.
      query_latent: width of the queries' own latent; 0 for a direct projection.
      positions: the scheme that rotates the R channels.
      alignment: scores to weights.
      dropout: rate on the attention weights, not renormalised.
      kernel: how it is computed; none changes the result (see `kernels`).

    Card: heads; DeepSeek-AI, DeepSeek-V2, 2024; time T^2 (d + H R) + T d (d + C); state T (C + R);
    path 1; steps 1.
    """

    heads: int = 4
    head_width: int = 0
    latent: int = 32
    rotary: int = 0
    query_latent: int = 0
    positions: Part = "none"
    alignment: Part = "softmax"
    dropout: float = 0.0
    kernel: KernelName = "auto"

    parts = {"positions": POSITIONS, "alignment": ALIGNMENTS}
    capabilities = Capabilities(
        dropout=True, positions=frozenset({"query_key"}), history=True, window=True
    )

    memory_class = LatentMemory

    def setup(self) -> None:
        """Checks the sizes (raises UserError if they do not fit), and creates the projections down
        to latents, up to keys and values, and of queries, with their norms.
        """
        if not self.head_width or self.heads < 1:
            head_width("latent", self.width, self.heads)
        at_least(1, "latent", latent=self.latent)
        sizes = {"rotary": self.rotary, "query_latent": self.query_latent}
        at_least(0, "latent", head_width=self.head_width, **sizes)
        size = self.size()
        self.w_latent = Dense(self.latent, use_bias=False)
        self.norm_latent = nn.RMSNorm(epsilon=EPSILON, param_dtype=float)
        if self.rotary:
            self.w_turned = Dense(self.rotary, use_bias=False)
        if self.query_latent:
            self.w_query_latent = Dense(self.query_latent, use_bias=False)
            self.norm_query = nn.RMSNorm(epsilon=EPSILON, param_dtype=float)
        self.w_query = Dense(self.heads * (size + self.rotary), use_bias=False)
        up = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
        self.up_key = self.param("up_key", up, (self.latent, self.heads, size))
        self.up_value = self.param("up_value", up, (self.latent, self.heads, size))
        self.out = Dense(self.width, use_bias=False, kernel_init=GLOROT)
        super().setup()

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """Computes from `Tokens` a dict of the arrays that a memory stores, shared by all heads:
        "latents", normalised [B,1,t,C], and "turned", key channels [B,1,t,R] rotated by position.
        See `Attention.arrays`.
        """
        latents = self.norm_latent(self.w_latent(tokens.keys))[:, None].astype(tokens.keys.dtype)
        if not self.rotary:
            return {"latents": latents, "turned": latents[..., :0]}
        rotated = self.scheme.of_key(self.w_turned(tokens.keys)[:, None], tokens.positions)
        return {"latents": latents, "turned": rotated}

    def look(
        self, query: jax.Array, memory: Any, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] from the memory's latents: computes
        keys and values of H heads from them, or, where this is less work (`absorbs`), projects the
        queries so that the latents serve as one head of keys and values. See `HeadsAttention.look`.
        """
        view = view.onto(memory, query)
        content, rotated = self.queries(query, view.i)
        absorb = self.absorbs(*view.size)
        keys, values = memory.latents, memory.latents
        if absorb:
            content = jnp.einsum("bhqd,chd->bhqc", content, self.up_key)
        else:
            keys, values = (
                jnp.einsum("bktc,chd->bhtd", memory.latents, up)
                for up in (self.up_key, self.up_value)
            )
        shared = jnp.broadcast_to(memory.turned, (*keys.shape[:3], self.rotary))
        joined_queries, joined_keys = (
            jnp.concatenate(parts, axis=-1) for parts in ((content, rotated), (keys, shared))
        )
        return AttentionInputs(
            queries=joined_queries,
            keys=joined_keys,
            values=values,
            score=lambda q, k, i, j: regroup(inner(regroup(q, k.shape[1]), k), self.heads),
            view=view,
            align=self.align,
            drop=self.drop,
            product=True,
            history=history,
        )

    def result(self, context: jax.Array, query: jax.Array, look: AttentionInputs) -> jax.Array:
        """See `HeadsAttention.result`."""
        if self.absorbs(*look.view.size):
            context = jnp.einsum("bhqc,chd->bhqd", context, self.up_value)
        return super().result(context, query, look)

    def queries(self, query: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Projects a query [B,Tq,dq] at positions [Tq] or [B,Tq] to H heads, times 1 / sqrt(D + R),
        and returns two arrays: the part without positions [B,H,Tq,D], and the channels rotated by
        position [B,H,Tq,R].
        """
        size = self.size()
        x = query
        if self.query_latent:
            x = self.norm_query(self.w_query_latent(query)).astype(query.dtype)
        q = split(self.w_query(x), self.heads)
        scale = (size + self.rotary) ** -0.5
        return q[..., :size] * scale, (
            self.scheme.of_query(q[..., size:], positions) * scale if self.rotary else q[..., size:]
        )

    def absorbs(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form costs fewer FLOPs: it computes no keys and values, but has
        wider products.
        """
        direct, absorbed = self.operations(queries, keys)
        return absorbed < direct

    @nn.nowrap
    def operations(self, queries: int, keys: int) -> tuple[int, int]:
        """Counts the multiply-adds of one head for `queries` queries and `keys` keys, and returns
        two numbers: in the direct form (keys and values computed from latents), and in the absorbed
        form (latents used as keys and values).
        """
        size = self.size()
        direct = 2 * keys * self.latent * size + queries * keys * (2 * size + self.rotary)
        return direct, 2 * queries * self.latent * size + queries * keys * (
            2 * self.latent + self.rotary
        )
