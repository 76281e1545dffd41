"""What every layer is that moves information along a sequence: softmax attention, and whatever
carries a state from token to token.

    y, state = mixer.mix(x, view)                 the whole text; `state` goes on from its end
    state    = mixer.begin(rows, room, dtype)     before the first token
    y, state = mixer.mix(piece, view, state)      a piece; in any pieces the y of the whole text

Axis letters: B batch, T tokens of a piece, d width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import flax.linen as nn
import jax

from attnlab.attention.cards import Card, Cost
from attnlab.attention.view import CAUSAL, View

if TYPE_CHECKING:
    from attnlab.attention.protocol import Capabilities


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
