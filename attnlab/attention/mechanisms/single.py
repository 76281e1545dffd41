"""Single-head attention over the source itself, any score and any alignment (the general form of
Luong et al. 2015); and over states that are split into a key, a value and a part for the prediction
(`KeyValue`, `KeyValuePredict`, which have their own formula, cost and source).

    e_ij = score(q_i, s_j)        a_i = align(e_i)        c_i = sum_j a_ij s_j

With the additive score and softmax this is the attention of RNNsearch (Bahdanau et al. 2015); with
dot, general, concat or location scores, and local alignments, that of Luong et al. 2015. The source
is not projected: keys and values are the source itself. Cost and parameters: those of score and
alignment, and 2 Tq Tk d FLOPs for the sum. Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine
Translation by Jointly Learning to Align and Translate", ICLR 2015; M.-T. Luong, H. Pham, C. D.
Manning, "Effective Approaches to Attention-based Neural Machine Translation", EMNLP 2015.
"""

from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.protocol import full_mask
from attnlab.attention.kernels import KernelName
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.heads import HeadsAttention, pairs_of
from attnlab.attention.memories import Memory
from attnlab.attention.protocol import Capabilities, Tokens
from attnlab.attention.scores import SCORES
from attnlab.attention.view import View, Where
from attnlab.config.registry import Part
from attnlab.errors import UserError
from attnlab.layers.dense import unbiased


@flax.struct.dataclass
class SingleMemory(Memory):
    """keys [B,1,Tk,A], the source (or its key parts) after `Score.of_key`; values [B,1,Tk,Dv], the
    source (or its value parts). `key_width` is the width of a key before `Score.of_key`.
    """

    keys: jax.Array
    values: jax.Array
    key_width: int = flax.struct.field(pytree_node=False, default=0)


class Single(HeadsAttention):
    """One head over the unprojected source: context [B,Tq,width] with width = ds.

    Attributes:
      score: how a query and a source state fit.
      alignment: scores to weights.
      dropout: dropout rate of the attention weights in training, whose sum is then no longer 1.
      kernel: the way the same numbers are computed; "auto" takes the fastest that fits (see
          `kernels`).

    Card: one head; Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015;
    time T^2 (d + A) + T d A; state T (d + A); path 1; steps 1.
    """

    score: Part = "additive"
    alignment: Part = "softmax"
    dropout: float = 0.0
    kernel: KernelName = "auto"

    parts = {"score": SCORES, "alignment": ALIGNMENTS}
    capabilities = Capabilities(
        dropout=True, values=True, unprojected=True, history=True, window=True
    )

    memory_class = SingleMemory

    def keys_and_values(self, keys: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns keys [B,Tk,dk] and values [B,Tk,Dv] unprojected, with a new axis for one head,
        [B,1,Tk,dk] and [B,1,Tk,Dv]; raises UserError if the values are not `width` wide.
        """
        if values.shape[-1] != self.width:
            raise UserError(
                f"single: the source is {values.shape[-1]} wide, the context is asked to be"
                f" {self.width}; they must agree"
            )
        return keys[:, None], values[:, None]

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`."""
        keys, values = self.keys_and_values(tokens.keys, tokens.values)
        return {"keys": self.fit.of_key(keys), "values": values}

    def remember_pairs(
        self,
        keys: jax.Array,
        values: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> SingleMemory:
        """Creates the memory of one head from two arrays, `keys` [B,Tk,dk] and `values`
        [B,Tk,width], which stay unprojected but for the score's part for keys, and notes the width
        of the keys in it; raises UserError for other widths of values. See
        `Attention.remember_pairs`.
        """
        memory = super().remember_pairs(keys, values, valid, capacity, positions)
        return memory.replace(key_width=self.key_width(keys.shape[-1]))  # type: ignore[no-any-return]

    @nn.nowrap
    def key_width(self, source_width: int) -> int:
        """See `SingleMemory`."""
        return source_width

    @nn.nowrap
    def weighing(self) -> int:
        """See `HeadsAttention.weighing`."""
        return 1

    def scored(self, query: jax.Array) -> jax.Array:
        """The part [B,Tq,A'] of the query [B,Tq,dq] that the score gets."""
        return query

    def look(
        self, query: jax.Array, memory: Any, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` of one head for a query [B,Tq,dq] on a memory: the query
        transformed by the score, and keys (transformed by the score when they were remembered) and
        unprojected values of the memory. See `HeadsAttention.look`.
        """
        pairs = pairs_of(self.fit, history)
        q = self.scored(query)[:, None]
        return AttentionInputs(
            queries=self.fit.of_query(q, memory.key_width) * self.fit.scale(q.shape[-1]),
            keys=memory.keys,
            values=memory.values,
            score=lambda q, k, i, j: pairs(q, k, j),
            view=view.onto(memory, query),
            align=self.align,
            drop=self.drop,
            product=self.fit.product,
            history=history,
            after=lambda past, weights: self.fit.after(past, weights, memory.keys),
        )

    def result(self, context: jax.Array, query: jax.Array, look: AttentionInputs) -> jax.Array:
        """See `HeadsAttention.result`."""
        return context[:, 0]


class KeyValue(Single):
    """States of two parts, a key and a value; its fields are those of `Single`, with the key parts
    in place of query and source.

        s_j = [k_j ; v_j]            x_i = [k_i ; v_i]                   key_value             own_i = v_i
        s_j = [k_j ; v_j ; p_j]      x_i = [k_i ; v_i ; p_i]             key_value_predict     own_i = p_i
        e_ij = score(k_i, k_j)        r_i = sum_j align(e_i)_j v_j        y_i = tanh(r_i W_r + own_i W_x)

    States are split in order into n equal parts, without a projection. Query and source are split
    alike, so in self-attention the query of a state is its key. Two sequences may have different
    widths. Of a source only key and value are used, of a query only the first and the last part. In
    the paper the parts, the hidden layer of the score and y have one width, and there are no biases.
    The paper's window, set by the view here, holds earlier states only. If it is empty, the paper
    predicts from `own` alone; here, as in every mechanism, a query that may see nothing gets zeros.
    Cost: that of score and alignment, and 2 Tq Tk (ds / n) FLOPs for the sum. Parameters: those of
    the score, and (ds + dq) / n width of W_r and W_x. Source: M. Daniluk, T. Rocktäschel, J. Welbl,
    S. Riedel, "Frustratingly Short Attention Spans in Neural Language Modeling", ICLR 2017.

    Card: one head; Daniluk et al., Frustratingly Short Attention Spans, ICLR 2017;
    time T^2 (d + A) + T d (d + A); state T (d + A); path 1; steps 1.
    """

    capabilities = Capabilities(dropout=True, own=True, history=True, window=True)
    names: ClassVar[tuple[str, ...]] = ("key", "value")

    def setup(self) -> None:
        super().setup()
        self.of_found, self.of_own = unbiased(2, self.width)

    def cut(self, x: jax.Array, name: str) -> list[jax.Array]:
        """Splits x [B,T,d] along its last axis into a list of n equal parts [B,T,d/n], n the number
        of the class's `names` (such as key and value); raises UserError, calling x by `name`, if n
        does not divide d.
        """
        width, count = x.shape[-1], len(self.names)
        if width % count:
            near = " or ".join(
                str(count * part) for part in (width // count, width // count + 1) if part
            )
            raise UserError(
                f"{'_'.join(('key_value', *self.names[2:]))}: the {name} is {width} wide, which"
                f" cannot be cut into {', '.join(self.names)} of one width; {near} can"
            )
        return jnp.split(x, count, axis=-1)

    def keys_and_values(self, keys: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        """See `Single.keys_and_values`; here both are the source, and give its parts
        [B,1,Tk,ds/n].
        """
        return self.cut(keys, "source")[0][:, None], self.cut(values, "source")[1][:, None]

    @nn.nowrap
    def key_width(self, source_width: int) -> int:
        """See `SingleMemory`."""
        return source_width // len(self.names)

    def scored(self, query: jax.Array) -> jax.Array:
        """See `Single.scored`: the key part."""
        return self.cut(query, "query")[0]

    def result(self, context: jax.Array, query: jax.Array, look: AttentionInputs) -> jax.Array:
        """Computes tanh(W_1 context + W_2 last part of the query), [B,Tq,width], from a context
        [B,1,Tq,Dv] and the query [B,Tq,dq]; 0 for queries that may see no key by the view of
        `look`. See `HeadsAttention.result`.
        """
        last_part = self.cut(query, "query")[-1]
        merged = jnp.tanh(self.of_found(context[:, 0]) + self.of_own(last_part))
        mask = full_mask(look.view.allowed(), look.view.size[1])
        sees = jnp.broadcast_to(mask.any(axis=-1), (len(query), 1, query.shape[1]))
        return jnp.where(sees[:, 0, :, None], merged, 0)


class KeyValuePredict(KeyValue):
    """States of three parts: a key, a value, and one for the prediction of the state itself.

        s_j = [k_j ; v_j]            x_i = [k_i ; v_i]                   key_value             own_i = v_i
        s_j = [k_j ; v_j ; p_j]      x_i = [k_i ; v_i ; p_i]             key_value_predict     own_i = p_i
        e_ij = score(k_i, k_j)        r_i = sum_j align(e_i)_j v_j        y_i = tanh(r_i W_r + own_i W_x)

    Cost: see `KeyValue`, n = 3.

    Card: one head; Daniluk et al., Frustratingly Short Attention Spans, ICLR 2017;
    time T^2 (d + A) + T d (d + A); state T (d + A); path 1; steps 1.
    """

    names = ("key", "value", "predict")
