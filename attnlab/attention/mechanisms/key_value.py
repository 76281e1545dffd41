"""Attention over states that are split into a key, a value and a part for the prediction (Daniluk
et al. 2017).

    s_j = [k_j ; v_j]            x_i = [k_i ; v_i]                   key_value             own_i = v_i
    s_j = [k_j ; v_j ; p_j]      x_i = [k_i ; v_i ; p_i]             key_value_predict     own_i = p_i
    e_ij = score(k_i, k_j)        r_i = sum_j align(e_i)_j v_j        y_i = tanh(r_i W_r + own_i W_x)

One head. States are split in order into equal parts, without a projection. Query and source are
split alike, so in self-attention the query of a state is its key. Two sequences may have different
widths. Of a source only key and value are used, of a query only the first and the last part. In the
paper the parts, the hidden layer of the score and y have one width, and there are no biases. The
paper's window, set by the view here, holds earlier states only. If it is empty, the paper predicts
from `own` alone; here, as in every mechanism, a query that may see nothing gets zeros. Cost and
parameters: those of score and alignment, 2 Tq Tk (ds / n) FLOPs for the sum, and (ds + dq) / n
width parameters of W_r and W_x. Source: M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel,
"Frustratingly Short Attention Spans in Neural Language Modeling", ICLR 2017.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import full_mask
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.single import Single
from attnlab.attention.protocol import Capabilities
from attnlab.errors import UserError
from attnlab.layers.dense import unbiased


class KeyValue(Single):
    """States of two parts, a key and a value; its fields are those of `Single`, with the key parts
    in place of query and source.

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

    Card: one head; Daniluk et al., Frustratingly Short Attention Spans, ICLR 2017;
    time T^2 (d + A) + T d (d + A); state T (d + A); path 1; steps 1.
    """

    names = ("key", "value", "predict")
