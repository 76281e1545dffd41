"""Structured self-attention, r hops over one source (Lin et al. 2017): each hop has a learned
vector instead of a query.

    A = align over j of (W_2 tanh(W_1 s_j))        r weights for each source state
    M = A S  [r,ds]                                y = (M side by side) W_o   or   y = M side by side

Every query gets the same r hops, restricted to the keys that it may see. The penalty || A A^T - I
||_F^2 makes hops differ. It is returned as the loss "hops" of each query, without a weight. Cost: 2
Tk (ds A + A r) FLOPs for the scores, 2 r Tq Tk ds for the sums, 2 r^2 Tq Tk for the penalty.
Parameters: ds A + A r + r ds width, without W_o ds A + A r. Source: Z. Lin et al., "A Structured
Self-attentive Sentence Embedding", ICLR 2017 (arXiv 1703.03130), equations 5-8. The paper's
classifier takes M itself (`output="side_by_side"`); the projection to `width` is ours, so that the
mechanism fits any slot.
"""

from typing import Any, ClassVar, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.kernels import KernelName
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.heads import HeadsAttention
from attnlab.attention.memories import Memory
from attnlab.attention.protocol import Capabilities, Tokens
from attnlab.attention.view import View
from attnlab.config.registry import Part
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import Dense, joined, widened


@flax.struct.dataclass
class HopsMemory(Memory):
    """scores [B,r,Tk,1] of every source state; values [B,1,Tk,ds], the source."""

    scores: jax.Array
    values: jax.Array


class Hops(HeadsAttention):
    """r weighted means of the source, concatenated and, by default, projected to the width.

    Attributes:
      hops: r, how many weighted means of the source are taken side by side.
      hidden: A, the width of the hidden layer that makes the scores.
      alignment: scores to weights.
      dropout: dropout rate of the attention weights in training, whose sum is then no longer 1.
      output: "projected" by W_o, or "side_by_side": the means concatenated, with width r ds.

    Card: hops; Lin et al., Structured Self-attentive Sentence Embedding, ICLR 2017;
    time T^2 r (d + r) + T d (A + r d); state T (d + r); path 1; steps 1.
    """

    hops: int = 4
    hidden: int = 64
    alignment: Part = "softmax"
    dropout: float = 0.0
    output: Literal["projected", "side_by_side"] = "projected"

    parts = {"alignment": ALIGNMENTS}
    capabilities = Capabilities(dropout=True, history=True, window=True)

    @nn.nowrap
    def side_by_side(self) -> int:
        """See `Attention.side_by_side`."""
        return self.hops if self.output == "side_by_side" else 1

    kernel: ClassVar[KernelName] = "plain"
    memory_class = HopsMemory

    def setup(self) -> None:
        """Checks that `hops` and `hidden` are at least 1 (raises UserError if not), and creates the
        projections.
        """
        at_least(1, "hops", hops=self.hops, hidden=self.hidden)
        self.w_hidden = Dense(self.hidden, use_bias=False)
        self.w_hops = Dense(self.hops, use_bias=False)
        if self.output == "projected":
            self.out = Dense(self.width, use_bias=False)
        super().setup()

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`: scores [B,r,t,1], and the source itself."""
        scores = self.w_hops(jnp.tanh(self.w_hidden(tokens.keys))).transpose(0, 2, 1)[..., None]
        return {"scores": scores, "values": tokens.keys[:, None]}

    @nn.nowrap
    def weighing(self) -> int:
        """See `HeadsAttention.weighing`."""
        return self.hops

    def look(
        self, query: jax.Array, memory: Any, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] with one head for each hop: the scores
        are stored in the memory for each key and hop, the values are the memory's values; only
        number and positions of the queries count. See `HeadsAttention.look`; of the query only its
        position counts.
        """
        batch, queries = query.shape[:2]
        return AttentionInputs(
            queries=jnp.zeros((batch, self.hops, queries, 0), query.dtype),
            keys=memory.scores,
            values=memory.values,
            score=lambda q, k, i, j: jnp.broadcast_to(
                widened(k.swapaxes(2, 3)), (*q.shape[:3], k.shape[2])
            ),
            view=view.onto(memory, query),
            align=self.align,
            drop=self.drop,
            history=history,
        )

    def result(self, context: jax.Array, query: jax.Array, look: AttentionInputs) -> jax.Array:
        """Joins the contexts of the hops [B,r,Tq,Dv] side by side and returns [B,Tq,width]:
        projected if the field `output` is "projected", else as they are; raises UserError if they
        are then not `width` wide. See `HeadsAttention.result`.
        """
        context = joined(context)
        if self.output == "projected":
            context = self.out(context)
        elif context.shape[-1] != self.width:
            raise UserError(
                f"hops: hops={self.hops} side by side are {context.shape[-1]} wide, the context is"
                f" asked to be {self.width}"
            )
        return context

    def losses(self, weights: jax.Array | None) -> dict[str, jax.Array]:
        """See `HeadsAttention.losses`; the plain kernel always has the weights."""
        assert weights is not None
        return {"hops": overlap(weights)}


def overlap(weights: jax.Array) -> jax.Array:
    """|| A A^T - I ||_F^2 of the hops [B,r,Tq,Tk] of each query, [B,Tq]."""
    gram = jnp.einsum("brqk,bsqk->bqrs", weights, weights)
    return ((gram - jnp.eye(weights.shape[1], dtype=gram.dtype)) ** 2).sum(axis=(2, 3))
