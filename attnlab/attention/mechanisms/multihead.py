"""Multi-head attention (Vaswani et al. 2017), optionally with fewer key heads (MQA, GQA); any
score, alignment and position scheme.

    q, k, v = x W_q, s W_k, s W_v      H query heads of width D, by default width / H;  K key and value heads
    A_h = align(score(q_h, k_g) + position bias),  g = floor(h K / H)        y = concat_h(A_h v_g) W_o

By default score = q k^T / sqrt(D) and align = softmax, as in the paper. K = 1 is multi-query
attention (Shazeer 2019), 1 < K < H grouped-query attention (Ainslie et al. 2023): head h reads key
head floor(h K / H), so neighbours share a key head. Cost: 4 Tq Tk width FLOPs for the two products,
2 n m per row of each projection. Parameters 2 width^2 (1 + K / H). Memory for decoding: 2 K D
numbers per token. Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017 (arXiv
1706.03762), section 3.2; N. Shazeer, "Fast Transformer Decoding: One Write-Head is All You Need",
2019; J. Ainslie et al., "GQA", EMNLP 2023. As in the formulas of Vaswani et al. the projections
have no biases by default. A row without allowed keys gives zeros; the papers leave this open.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.protocol import Softmax, softmax
from attnlab.attention.interventions import weights_changed
from attnlab.attention.kernels import KernelName
from attnlab.attention.kernels.plain import AttentionInputs, is_short, regroup
from attnlab.attention.mechanisms.heads import HeadsAttention, pairs_of
from attnlab.attention.memories import Memory
from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.protocol import Capabilities, Reading, Tokens, divisors_near
from attnlab.attention.scores import SCORES
from attnlab.attention.scores.protocol import ScaledDot, inner
from attnlab.attention.view import EVERYTHING, View
from attnlab.config.registry import Part
from attnlab.errors import UserError, at_least, nearest
from attnlab.layers.dense import Dense, split, widened

PROJECTIONS = ("query", "key", "value", "out")


@flax.struct.dataclass
class MultiHeadMemory(Memory):
    """keys [B,K,Tk,A] after score and positions; values [B,K,Tk,D]. Heads come first, since the two
    products are fastest then.
    """

    keys: jax.Array
    values: jax.Array


class MultiHead(HeadsAttention):
    """H independent heads; queries are H * D wide, keys and values K * D; the context has the width
    that the system sets.

    Attributes:
      heads: H, how many heads look independently; must divide the width, unless `head_width` is
          given.
      key_heads: K, how many heads of keys and values there are, each shared by H / K heads of
          queries (grouped queries); must divide H; 0 for K = H.
      head_width: D, the width of a query and a key of one head; 0 for width / H.
      score: how a query and a key fit.
      alignment: scores to weights.
      positions: a scheme that acts on queries and keys, scores or values ("none" for none).
      dropout: dropout rate of the attention weights in training, whose sum is then no longer 1.
      bias: which of the four projections have a bias: True for all, False for none, or the names of
        those that do, among "query", "key", "value" and "out" (Qwen 2 has the first three).
      kernel: the way the same numbers are computed; "auto" takes the fastest that fits (see
          `kernels`).

    Card: heads; Vaswani et al., Attention Is All You Need, NeurIPS 2017 (K = 1: Shazeer 2019; 1 < K
    < H: Ainslie et al. 2023); time T^2 d + T d^2; state T d K / H; path 1; steps 1.
    """

    heads: int = 4
    key_heads: int = 0
    head_width: int = 0
    score: Part = "scaled_dot"
    alignment: Part = "softmax"
    positions: Part = "none"
    dropout: float = 0.0
    bias: bool | tuple[str, ...] = False
    kernel: KernelName = "auto"

    parts = {"score": SCORES, "alignment": ALIGNMENTS, "positions": POSITIONS}
    capabilities = Capabilities(
        dropout=True,
        positions=frozenset({"query_key", "score", "value", "row"}),
        values=True,
        history=True,
        window=True,
    )

    memory_class: ClassVar[type[Memory]] = MultiHeadMemory

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises UserError if a subclass has the method `key_value` of an earlier version, in whose
        place `arrays` is to be overridden; `options` are passed on to the base class.
        """
        super().__init_subclass__(**options)
        if hasattr(cls, "key_value"):
            raise UserError(
                f"{cls.__name__}.key_value is not called any more; override arrays instead"
            )

    def setup(self) -> None:
        """Checks the numbers of heads and key heads against the width (raises UserError if they do
        not fit), and creates the projections of query, key, value and output.
        """
        at_least(0, "multihead", head_width=self.head_width)
        if self.heads < 1 or (not self.head_width and self.width % self.heads):
            raise UserError(
                f"multihead: width={self.width} is not divisible by heads={self.heads}; heads could"
                f" be {divisors_near(self.width, self.heads)}, or set head_width"
            )
        if self.key_heads < 0 or self.heads % (self.key_heads or 1):
            near = divisors_near(self.heads, self.key_heads)
            raise UserError(
                f"multihead: heads={self.heads} is not divisible by key_heads={self.key_heads};"
                f" key_heads could be {near}"
            )
        shared = self.key_heads or self.heads
        self.w_query = self.projection("query", self.heads)
        self.w_key = self.projection("key", shared)
        self.w_value = self.projection("value", shared)
        self.out = Dense(self.width, self.biased("out"))
        super().setup()

    @nn.nowrap
    def biased(self, projection: str) -> bool:
        """Returns whether the projection of this name ("query", "key", "value" or "out") has a
        bias, by the field `bias`, a bool or the names of projections; raises UserError if it has an
        unknown name.
        """
        if isinstance(self.bias, bool):
            return self.bias
        for name in self.bias:
            if name not in PROJECTIONS:
                raise UserError(f"multihead: bias={name!r}; {nearest(name, PROJECTIONS)}")
        return projection in self.bias

    @nn.nowrap
    def projection(self, name: str, heads: int) -> Any:
        """The projection "query", "key" or "value", [B,T,d] to [B,T,heads*D]."""
        return Dense(heads * self.size(), self.biased(name))

    def split(self, x: jax.Array) -> jax.Array:
        """[B,T,n*D] to heads first, [B,n,T,D]."""
        return split(x, x.shape[-1] // self.size())

    def split_values(self, x: jax.Array) -> jax.Array:
        """Projected values [B,T,K*D], heads first."""
        return self.split(x)

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`: keys [B,K,t,A] and values [B,K,t,D]."""
        keys = self.fit.of_key(self.split(self.w_key(tokens.keys)))
        values = self.split_values(self.w_value(tokens.values))
        return {"keys": self.scheme.of_key(keys, tokens.positions), "values": values}

    def read(
        self,
        query: jax.Array,
        memory: Any,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Computes attention of a query [B,Tq,dq] to a memory, and returns a `Reading`: directly by
        masked softmax of scaled inner products if `is_plain`, else as `HeadsAttention.read`, with
        `look` and a kernel. See `Attention.read`.
        """
        if not self.is_plain(query.shape[1], memory):
            return super().read(query, memory, view, weights, history)
        memory = self.formed(memory)
        keys, values = memory.keys, memory.values  # [B,K,Tk,D]
        q = self.split(self.w_query(query))  # [B,H,Tq,D]
        q = q * self.fit.scale(q.shape[-1])
        scores = regroup(inner(regroup(q, keys.shape[1]), keys), self.heads)  # [B,H,Tq,Tk]
        head_weights = softmax(scores, view.onto(memory, query).allowed())
        dropped = regroup(self.drop(head_weights).astype(values.dtype), keys.shape[1])
        context = regroup(jnp.einsum("bkqt,bktd->bkqd", dropped, values), self.heads)
        context = self.out(self.join(context, query))
        return Reading(context, self.capture(head_weights, memory, weights))

    def is_plain(self, queries: int, memory: Any) -> bool:
        """Returns whether `read` may compute attention of `queries` queries to a memory directly:
        the kernel is "plain" or (with few queries or keys, without cuDNN) "auto", score, alignment
        and positions are plain, no subclass overrides a hook, no intervention changes weights.
        """
        parts = type(self.fit), type(self.align), type(self.scheme)
        plain = parts == (ScaledDot, Softmax, PositionScheme) and not self.fit.over
        hooks = ("look", "result", "losses", "initial_history")
        plain = plain and all(getattr(type(self), h) is getattr(MultiHead, h) for h in hooks)
        short = is_short(self.kernel, queries, memory.valid.shape[1])
        return plain and short and not weights_changed()

    def look(
        self, query: jax.Array, memory: MultiHeadMemory, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] on a memory: scaled and rotated
        queries, the memory's keys and values, and functions for score, bias of positions, position
        values and changes of whole rows of scores. See `HeadsAttention.look`.
        """
        pairs = pairs_of(self.fit, history)
        view = view.onto(memory, query)
        q = self.split(self.w_query(query))  # [B,H,Tq,D]
        scale, width = self.fit.scale(q.shape[-1]), q.shape[-1]
        raised = self.fit.of_query(q, width)

        def score(
            queries: tuple[jax.Array, jax.Array], keys: jax.Array, i: jax.Array, j: jax.Array
        ) -> jax.Array:
            """Computes the scores [B,H,tq,tk] of a block of pairs, with the bias of positions."""
            scores = regroup(pairs(regroup(queries[0], keys.shape[1]), keys, j), self.heads)
            term = bias(queries, i, j)
            return scores if term is None else scores + widened(term)

        def bias(
            queries: tuple[jax.Array, jax.Array], i: jax.Array, j: jax.Array
        ) -> jax.Array | None:
            return self.scheme.bias(queries[1], view.among(i, j), scale)

        def relative(weights: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array | None:
            return self.scheme.values(weights, view.among(i, j), memory.values.shape[-1])

        def of_rows(
            scores: jax.Array, mask: jax.Array | None, view: View
        ) -> tuple[jax.Array, jax.Array | None]:
            return self.scheme.of_rows(q, scores, mask, view, scale), mask

        return AttentionInputs(
            queries=(self.scheme.of_query(raised, view.i) * scale, q),
            keys=memory.keys,
            values=memory.values,
            score=score,
            view=view,
            align=self.align,
            drop=self.drop,
            relative=relative if "value" in self.scheme.hooks else None,
            product=self.fit.product,
            bias=bias if "score" in self.scheme.hooks else None,
            history=history,
            after=lambda past, weights: self.fit.after(past, weights, memory.keys),
            between=of_rows if "row" in self.scheme.hooks else None,
        )


# of the forms whose scores sum up what stands between a key and its query
OF_CAUSAL_TEXTS = dataclasses.replace(
    MultiHead.capabilities,
    roles=frozenset({"self"}),
    directions=frozenset({"causal"}),
    window=False,
)
