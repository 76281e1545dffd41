"""Who may see whom, kept as structure and turned into a dense mask only where a kernel wants one.

Axis letters: B batch, H heads, Tq queries, Tk keys. Query i of Tq stands at key position `length - Tq + i`, where
`length` is the number of keys written: the last query sits on the last key, in a full pass as in cached decoding.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Visibility:
    """Rules that all must allow a (query, key) pair; key padding is the memory's own business and not here.

    Attributes:
      causal: a query sees no later key, j <= i.
      window: a query sees only the `window` last keys up to itself and as many after it, |i - j| < window; None for all.
      prefix: [B] int32, keys before it are seen by every query even under `causal` (prefix-LM); None for none.
      segments: ([B,Tq], [B,Tk]) int32, only equal segment ids see one another (packed sequences); None for one segment.
      dense: boolean, broadcastable to [B,H,Tq,Tk], for anything else; None for all True.
    """

    causal: bool = flax.struct.field(pytree_node=False, default=False)
    window: int | None = flax.struct.field(pytree_node=False, default=None)
    prefix: jax.Array | None = None
    segments: tuple[jax.Array, jax.Array] | None = None
    dense: jax.Array | None = None

    def mask(self, queries: int, keys: int, length: jax.Array | int) -> jax.Array | None:
        """The rules as a boolean array broadcastable to [B,H,Tq,Tk], or None if every pair is allowed.

        Args:
          queries: Tq.
          keys: Tk, the slots of the memory.
          length: [] int32, the slots written; query i stands at position `length - Tq + i`.
        """
        i = (jnp.arange(queries) + (length - queries))[:, None]
        j = jnp.arange(keys)[None, :]
        rules: list[jax.Array] = []
        if self.causal:
            before = (j <= i)[None, None]
            rules.append(before if self.prefix is None else before | (j[None, None] < self.prefix[:, None, None, None]))
        if self.window is not None:
            rules.append((abs(i - j) < self.window)[None, None])
        if self.segments is not None:
            of_query, of_key = self.segments
            rules.append((of_query[:, :, None] == of_key[:, None, :])[:, None])
        if self.dense is not None:
            rules.append(self.dense)
        if not rules:
            return None
        allowed = rules[0]
        for rule in rules[1:]:
            allowed = allowed & rule
        return allowed


EVERYTHING = Visibility()
CAUSAL = Visibility(causal=True)
