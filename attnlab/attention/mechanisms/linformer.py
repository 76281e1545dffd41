"""Linformer (Wang et al. 2020): keys and values are projected along the sequence to k rows, so that
a query has k weights, however long the source.

    K' = E K,  V' = F V                              E, F [k,L], the first Tk columns of them
    P_h = softmax(q_h K'_h^T / sqrt(D))  [Tq,k]      y = concat_h(P_h V'_h) W_o

E and F are learned, one column for each position, so sources have at most L tokens; longer ones are
refused. Keys and values of padding are zero *before* the projection: masking scores afterwards
could not undo it. For the same reason there is no causal form: every row of K' mixes all positions,
and no rule about pairs can be honoured. The map that is recorded is P F, the weights that values
really get; its rows sum to anything. Sharing: "none" (E and F of each head), "heads" (one E and one
F), "key_value" (one E = F). Cost: 4 Tk k d FLOPs for E K and F V, 4 Tq k d for the look.
Parameters: 2 k L H without sharing. A memory keeps 2 k d numbers, however long the source, and which of its T tokens are real. Source:
S. Wang, B. Li, M. Khabsa, H. Fang, H. Ma, "Linformer: Self-Attention with Linear Complexity", 2020
(arXiv 2006.04768), section 4, equation 7. Its fourth kind of sharing, one E for all layers, and
projections by pooling or convolution are not here. E and F start normal with variance 1 / k, as in
its theorem.
"""

from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.memories import Memory, beginning, written
from attnlab.attention.mixer import no_rule
from attnlab.attention.protocol import MAPS, Attention, Capabilities, Reading, head_width
from attnlab.attention.view import EVERYTHING, View, Where, token_positions
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import Dropout, joined, split, unbiased, widened


@flax.struct.dataclass
class LinformerMemory(Memory):
    """keys [B,H,k,D] and values [B,H,k,D], projected along the sequence."""

    keys: jax.Array
    values: jax.Array


class Linformer(Attention):
    """H heads of width D = width / H, each with k projected keys and values.

    Attributes:
      heads: H; must divide the width.
      rank: k.
      length: L, the longest source; in a config that does not name it, at least `batch.max_length`.
      share: which projections along the sequence are one: "none", "heads" or "key_value".
      dropout: rate on the weights P, not renormalised.

    Card: low-rank; Wang et al., Linformer, 2020; time T k d + T d^2; state k d + T; path 1;
    steps 1.
    """

    heads: int = 4
    rank: int = 64
    length: int = 512
    share: Literal["none", "heads", "key_value"] = "heads"
    dropout: float = 0.0

    lengths = {"length": "covers"}
    sums_to = "any"
    capabilities = Capabilities(
        directions=frozenset({"bidirectional"}),
        dense=False,
        dropout=True,
        cache=False,
        maps="effective",
    )

    def setup(self) -> None:
        """Checks that heads divide the width and that `rank` and `length` are at least 1 (raises
        UserError if not), and creates the projections, also those along the length.
        """
        head_width("linformer", self.width, self.heads)
        at_least(1, "linformer", rank=self.rank, length=self.length)
        self.w_query, self.w_key, self.w_value, self.out = unbiased(4, self.width)
        normal = nn.initializers.normal(self.rank**-0.5)
        shape = (self.heads if self.share == "none" else 1, self.rank, self.length)
        self.along_keys = self.param("along_keys", normal, shape)
        if self.share != "key_value":
            self.along_values = self.param("along_values", normal, shape)
        self.drop = Dropout(self.dropout)

    def columns(self, values: bool, positions: jax.Array, valid: jax.Array) -> jax.Array:
        """Returns E, or F for `values`, at positions [T] or [B,T], with zeros where `valid` [B,T]
        is False: [B,1 or H,k,T].
        """
        along = self.along_values if values and self.share != "key_value" else self.along_keys
        columns = jnp.take(along, positions, axis=2, mode="fill", fill_value=0)
        columns = columns[None] if positions.ndim == 1 else jnp.moveaxis(columns, 2, 0)
        return jnp.where(valid[:, None, None], columns, 0)

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> LinformerMemory:
        """Computes keys and values of a source [B,T,ds], projects each along the length to `rank`
        rows, and returns them in a `LinformerMemory`; raises UserError for more than `length`
        tokens. See `Attention.remember`.

        Raises:
          UserError: more tokens than `length`.
        """
        tokens = source.shape[1]
        if tokens > self.length:
            raise UserError(
                f"linformer: length={self.length}, but there is a source of {tokens} tokens; take"
                f" length={tokens} or more"
            )
        filled, written_slots = written(source, valid, capacity)
        where, real = token_positions(positions, tokens), jnp.asarray(filled[:, :tokens])
        x = jnp.where(real[..., None], source, 0)
        keys, values = (
            self.columns(is_value, where, real) @ split(project(x), self.heads)
            for is_value, project in ((False, self.w_key), (True, self.w_value))
        )
        return LinformerMemory(
            filled, written_slots, keys, values, positions=beginning(positions, filled)
        )

    def read(
        self,
        query: jax.Array,
        memory: LinformerMemory,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Computes softmax attention of a query [B,Tq,dq] to the `rank` projected keys and values,
        and returns a `Reading` of the context and, only if maps are recorded, weights over the
        tokens; raises UserError for a view with a rule or segments; `weights` and `history` are not
        used. See `Attention.read`.

        Raises:
          UserError: the view has a rule, or several texts share a row.
        """
        no_rule(self, view)
        q = split(self.w_query(query), self.heads) * (self.width // self.heads) ** -0.5
        scores = widened(jnp.einsum("bhqd,bhkd->bhqk", q, memory.keys))
        projected = jax.nn.softmax(scores, axis=-1)
        context = self.drop(projected).astype(query.dtype) @ memory.values
        maps = None
        if self.is_mutable_collection(MAPS):
            where = token_positions(
                0 if memory.positions is None else memory.positions, memory.valid.shape[1]
            )
            maps = projected @ widened(self.columns(True, where, memory.valid))
        return Reading(self.out(joined(context)), self.capture(maps, memory))
