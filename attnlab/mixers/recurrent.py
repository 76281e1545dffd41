"""A recurrent layer as a mixer: its state has the same size for texts of any length.

    h_t = cell(h_{t-1}, x_t)            cell: LSTM, GRU or tanh, see `layers.recurrent`
    y_t = h_t W_o                       where the state has another width than y; else y_t = h_t

Padding does not change the state. In a block with a residual connection this replaces attention by
a recurrent layer, as in M. X. Chen et al., "The Best of Both Worlds: Combining Recent Advances in
Neural Machine Translation", ACL 2018.

Axis letters: B batch, T tokens of a piece, d width, H state width.
"""

from typing import Any

import flax.linen as nn
import jax

from attnlab.attention.mixer import Capabilities, Mixer
from attnlab.attention.view import CAUSAL, View
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense

PASSING = Capabilities(
    roles=frozenset({"self"}),
    directions=frozenset({"causal"}),
    dense=False,
    maps="sensitivity",
    positions=frozenset({"embedding"}),
    state="constant",
)
"""The capabilities of a causal mixer with a state of constant size."""


class RecurrentMixer(Mixer):
    """A recurrent layer over the sequence, and a projection if its state has another width.

    Attributes:
      cell: "lstm", "gru" or "tanh", or a layer of your own.
      state: H, the width of the state; 0 for that of the output.

    Card: recurrent; Chen et al., The Best of Both Worlds, ACL 2018; time T d H + T H^2; state H;
    path T; steps T.
    """

    cell: Part = "lstm"
    state: int = 0

    parts = {"cell": CELLS}
    capabilities = PASSING

    def setup(self) -> None:
        self.layer = made(CELLS, self.cell)(width=self.size, name="cell")
        if self.size != self.width:
            self.out = Dense(self.width, use_bias=False)

    @property
    @nn.nowrap
    def size(self) -> int:
        """H."""
        return self.state or self.width

    def begin(self, rows: int, room: int, dtype: Any) -> Any:
        """See `Mixer.begin`: zeros."""
        return self.layer.State.zeros(rows, self.size, dtype)

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Any]:
        """See `Mixer.mix`."""
        one_text(self, view)
        self.record_sensitivity(x, view, state)
        y, state = self.layer(x, view.valid, state)
        return (y if self.size == self.width else self.out(y)), state


def one_text(mixer: Mixer, view: View) -> None:
    """Checks that a view has one text in each row, since the state of one would continue into the
    next; raises UserError if not.

    Raises:
      UserError: `view` has segments.
    """
    if view.segments is not None:
        raise UserError(
            f"{type(mixer).__name__}: texts that share a row (segments) would share its state; put"
            " one text in a row, or choose a mechanism of attention"
        )
