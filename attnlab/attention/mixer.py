"""What every layer is that moves information along a sequence: softmax attention, and whatever
carries a state from token to token.

    y, state = mixer.mix(x, view)                 the whole text; `state` goes on from its end
    state    = mixer.begin(rows, room, dtype)     before the first token
    y, state = mixer.mix(piece, view, state)      a piece; in any pieces the y of the whole text

Axis letters: B batch, T tokens of a piece, d width.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax

from attnlab.attention.cards import Card, Cost
from attnlab.attention.view import CAUSAL, View


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a mechanism can be asked for. Anything not declared is refused when the config is built.

    Attributes:
      roles: "self" (query and source are the same sequence), "cross" (they are not).
      directions: "causal" (a query sees no later key), "bidirectional".
      padding: honours `valid`.
      dense: honours an arbitrary rule in its view.
      dropout: drops attention weights in training.
      cache: `extend` works, so that decoding costs one step per token.
      maps: "exact" weights, "implied" by a linear form, "spatial" gates, or "none".
      positions: the position hooks it lets in ("embedding", "query_key", "score").
      max_length: longest source, None without a limit.
      values: `remember_pairs` works (and with a cache `extend_pairs`): what is taken need not be
        what is looked at.
      unprojected: the context is a weighted sum of the values as they are handed over, so that it
        stands in their place.
      own: the context has a part of the query merged in, so that a system need not add it.
      state: how much is kept of the tokens of a sequence: something of each, "tokens", or as much for
        any number of them, "constant".
      so_far: `read` takes and hands out what a look depends on of the looks before, so that parts
        that look back (a score with `looks_back`, an alignment of the form "look") work one query
        at a time.
    """

    roles: frozenset[str] = frozenset({"self", "cross"})
    directions: frozenset[str] = frozenset({"causal", "bidirectional"})
    padding: bool = True
    dense: bool = True
    dropout: bool = False
    cache: bool = True
    maps: Literal["exact", "implied", "spatial", "none"] = "exact"
    positions: frozenset[str] = frozenset({"embedding"})
    max_length: int | None = None
    values: bool = False
    unprojected: bool = False
    own: bool = False
    state: Literal["tokens", "constant"] = "tokens"
    so_far: bool = False


class Mixer(nn.Module):
    """Base of every mixer; its fields are its whole configuration.

    A subclass declares `capabilities`, says in its `card` where it comes from, and implements
    `begin` and `mix`. One that can also look at another sequence is an `Attention`. Dropout is on
    exactly when the caller passes a "dropout" random stream.

    Attributes:
      width: d, the width of what comes out; the system that uses the mixer sets it, not the config.
    """

    width: int

    capabilities: ClassVar[Capabilities]
    card: ClassVar[Card]

    def begin(self, rows: int, room: int, dtype: Any) -> Any:
        """The state before the first token of `rows` texts; every array of it leads with that axis
        (scalars aside).

        Args:
          rows: B.
          room: how many tokens may follow. A state that is declared "constant" is as large for any.
          dtype: of the tokens.
        """
        raise NotImplementedError

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Any]:
        """x [B,T,d] to y [B,T,d], and the state after the last token.

        Args:
          x: a piece of the texts.
          view: who sees whom; `view.valid` [B,T] tells which tokens of the piece are real.
          state: what the pieces before left; None: the piece is the whole text.
        """
        raise NotImplementedError

    @nn.nowrap
    def cost(self, queries: int, keys: int, query_width: int, source_width: int) -> Cost:
        """What one sequence costs, counted as `cards` says; a mixer that is no `Attention` is asked
        with as many queries as keys.
        """
        raise NotImplementedError(f"{type(self).__name__} declares no cost")
