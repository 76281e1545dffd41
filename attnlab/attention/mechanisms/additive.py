"""Additive attention (Bahdanau, Cho, Bengio 2015).

    e_ij = v . tanh(q_i W_a + s_j U_a)        a_i = softmax over the allowed j of e_i        c_i = sum_j a_ij s_j

Cost per query and key: `hidden` tanh evaluations; s U_a is computed once per source. Parameters: (dq + ds + 1) hidden.
Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", ICLR
2015 (arXiv 1409.0473), section 3.1 and appendix A.1.2. As there, no biases; W_a and U_a start at N(0, 0.001^2), v at zero,
so that attention starts exactly uniform.
"""

from __future__ import annotations

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import alignments
from attnlab.attention.projections import Dense
from attnlab.attention.protocol import Attention, Capabilities, Memory, Reading, written
from attnlab.attention.visibility import EVERYTHING, Visibility
from attnlab.errors import UserError


@flax.struct.dataclass
class AdditiveMemory(Memory):
    """keys [B,Tk,hidden] = s U_a; values [B,Tk,ds] = s itself."""

    keys: jax.Array
    values: jax.Array


class Additive(Attention):
    """Single-head additive attention over the source itself: context [B,Tq,width] with width = ds.

    Attributes:
      hidden: width A of the alignment model.
    """

    hidden: int = 256

    capabilities = Capabilities()

    def setup(self) -> None:
        if self.hidden < 1:
            raise UserError(f"additive: hidden={self.hidden}, must be at least 1")
        tiny = nn.initializers.normal(0.001)
        self.of_query = Dense(self.hidden, use_bias=False, kernel_init=tiny)
        self.of_key = Dense(self.hidden, use_bias=False, kernel_init=tiny)
        self.v = self.param("v", nn.initializers.zeros, (self.hidden,))

    def remember(self, source: jax.Array, valid: jax.Array | None = None, capacity: int | None = None) -> AdditiveMemory:
        """See `Attention.remember`; the source must have the context's width, for it is not projected."""
        if source.shape[-1] != self.width:
            raise UserError(f"additive: the source is {source.shape[-1]} wide, the context is asked to be {self.width}; they must agree")
        known, length = written(source, valid, capacity)
        room = ((0, 0), (0, known.shape[1] - source.shape[1]), (0, 0))
        return AdditiveMemory(known, length, jnp.pad(self.of_key(source), room), jnp.pad(source, room))

    def extend(self, memory: AdditiveMemory, source: jax.Array, valid: jax.Array | None = None) -> AdditiveMemory:
        """See `Attention.extend`."""
        fresh, _ = written(source, valid, None)
        put = jax.lax.dynamic_update_slice_in_dim
        return AdditiveMemory(
            valid=put(memory.valid, fresh, memory.length, 1),
            length=memory.length + source.shape[1],
            keys=put(memory.keys, self.of_key(source).astype(memory.keys.dtype), memory.length, 1),
            values=put(memory.values, source.astype(memory.values.dtype), memory.length, 1),
        )

    def read(self, query: jax.Array, memory: AdditiveMemory, visibility: Visibility = EVERYTHING) -> Reading:
        """See `Attention.read`."""
        mask = memory.valid[:, None, None, :]
        rules = visibility.mask(query.shape[1], memory.valid.shape[1], memory.length)
        mask = mask if rules is None else mask & rules
        scores = jnp.tanh(self.of_query(query)[:, :, None, :] + memory.keys[:, None, :, :]) @ self.v  # [B,Tq,Tk]
        weights = alignments.softmax(scores[:, None], mask)  # [B,1,Tq,Tk]
        context = weights[:, 0].astype(memory.values.dtype) @ memory.values
        return Reading(context, self.capture(weights))
