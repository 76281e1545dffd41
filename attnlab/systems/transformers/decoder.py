"""The decoder of the Transformer as a language model: an embedding, n blocks around one mixer, a
head.

    x_0      = dropout(s embedding + positions)            s = sqrt(d) if scaled
    x        = sub(x, causal mixer);  x = sub(x, feed-forward)              n times, `layers/block.py`
    logits   = N(x) E^T, E the embedding (or an own matrix);  c tanh(logits / c) if capped

GPT-2, Llama and later models are settings of it; `weights/` has these settings.

Source: A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018,
after P. Liu et al., "Generating Wikipedia by Summarizing Long Sequences", ICLR 2018, section 4.2.3.

Axis letters: B batch, T length, V vocabulary, d model width.
"""

from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.needs import Need
from attnlab.attention.view import CAUSAL, View, token_positions
from attnlab.errors import UserError
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Embed
from attnlab.systems.protocol import LanguageModel
from attnlab.systems.transformers.stack import Ruled, begun, rule_of, segment_positions


@flax.struct.dataclass
class Reading:
    """Tokens read so far of each row, [B] int32, and each layer's state."""

    read: jax.Array
    layers: list[Any]


class Decoder(Ruled, LanguageModel, kw_only=True):
    """Decoder-only Transformer. The fields not named here are those of `Ruled`.

    Attributes:
      visibility: who sees whom, beside causality.
      share: "output": logits are products with the embedding; "none": with an own matrix.
      logit_cap: c, beyond which logits are bent to stay between -c and c, c tanh(logits / c); 0 for
          none.

    Card: Radford et al., Improving Language Understanding, 2018.
    """

    share: Literal["output", "none"] = "output"
    logit_cap: float = 0.0

    needs = {
        "attention": Need(
            role="self",
            direction="causal",
            cache="decoding",
            maps=False,
            stepwise=True,
            history=True,
            mixes=True,
        )
    }
    carries = False
    packs = True
    in_two = True

    def setup(self) -> None:
        """Creates the embedding, the output layer (for share "none"), positions and layers; raises
        `UserError` for a negative cap of the logits.
        """
        if self.logit_cap < 0:
            raise UserError(f"decoder: logit_cap={self.logit_cap}: a cap is at least 0")
        normal = nn.initializers.normal(0.02)
        self.embed = Embed(self.vocabulary, self.word_width, embedding_init=normal)
        if self.share == "none":
            self.out = Dense(self.vocabulary, use_bias=False)
        super().setup()

    def start(self, rows: int, room: int) -> Reading:
        """Returns the state before the first token of `rows` texts, a `Reading` (tokens read: 0 for
        each row; every layer's cache for `room` tokens); raises `UserError` if the positions end
        before. See `LanguageModel.start`.

        Raises:
          UserError: more tokens than the positions reach.
        """
        longest = self.scheme.longest
        if longest is not None and room > longest:
            raise UserError(
                f"decoder: {room} tokens are to be read and written, but positions end at {longest};"
                " take shorter beginnings, lower decoding.max_extra and decoding.max_ratio, or take"
                " positions without an end"
            )
        dtype = jnp.asarray(self.embed.embedding).dtype
        states = [
            begun(block.attention, rule_of(self.visibility, number), rows, room, dtype)
            for number, block in enumerate(self.layer)
        ]
        # numbers that all rows share become one for each: rows of different lengths go on together
        by_row: list[Any] = jax.tree.map(
            lambda leaf: leaf if jnp.ndim(leaf) else jnp.broadcast_to(jnp.asarray(leaf), (rows,)),
            states,
        )
        return Reading(jnp.zeros(rows, jnp.int32), by_row)

    def read(self, state: Reading, tokens: jax.Array) -> tuple[jax.Array, Reading]:
        """See `LanguageModel.read`."""
        real = self.real(tokens)
        x, states = self._run(tokens, state.read, list(state.layers), real)
        return self.logits(x), Reading(state.read + real.sum(axis=1, dtype=jnp.int32), states)

    def __call__(self, tokens: jax.Array, segments: jax.Array | None = None) -> jax.Array:
        """See `LanguageModel.__call__`; in one pass without a cache. What is real sees no padding,
        which stands behind it. Each of the `segments` is read as if it stood alone.
        """
        return self.logits(self.hidden_states(tokens, segments))

    def hidden_states(self, tokens: jax.Array, segments: jax.Array | None = None) -> jax.Array:
        """See `LanguageModel.hidden_states`."""
        return self._run(tokens, 0, None, segments=segments)[0]

    def logits(self, x: jax.Array) -> jax.Array:
        """See `LanguageModel.logits`."""
        logits = self.out(x) if self.share == "none" else self.tied(x, self.embed.embedding)
        return self.logit_cap * jnp.tanh(logits / self.logit_cap) if self.logit_cap else logits

    def _run(
        self,
        tokens: jax.Array,
        first: Any,
        states: list[Any] | None,
        real: jax.Array | None = None,
        segments: jax.Array | None = None,
    ) -> tuple[jax.Array, list[Any]]:
        """Embeds tokens [B,T] from position `first` on and runs all layers, each causally and under
        its visibility rule, after their `states` (None: whole texts); returns x [B,T,d] and a list
        of the next states; `real`, `segments` [B,T]: which tokens are real, which text they belong
        to.

        Args:
          tokens: of the texts.
          first: position of the first, a number or [B].
          states: of the layers after the tokens before; None for whole texts.
          real: [B,T] bool, which tokens are no padding; None for all.
          segments: [B,T]: tokens with one number are one text; None for one a row.
        """
        positions = token_positions(first, tokens.shape[1])
        positions = positions if segments is None else segment_positions(segments)
        x = self.drop(self.embedded(self.embed(tokens), positions))
        norm_mask = self.norm_mask(tokens)

        def view(number: int) -> View:
            rule = rule_of(self.visibility, number)
            return View(CAUSAL.rule & rule, None if states is None else first, real, segments)

        return self.through_layers(x, view, norm_mask, states)
