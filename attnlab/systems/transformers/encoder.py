"""The encoder of the Transformer alone: an embedding, n blocks around one self-attention that sees
the whole text, a head for every token or one for the text.

    x_0      = dropout(N_e(s embedding + positions + types))     s = sqrt(d) if scaled; N_e, types if asked for
    x        = sub(x, self-attention);  x = sub(x, feed-forward)                n times, `layers/block.py`
    h        = N(x) in the placements that leave x without a norm, else x
    linear   h W + b                                             of every token
    tied     N_h(act(h W + b)) E^T + c                           of every token, E the embedding
    text     pool(h) W + b                                       pool: mean, first, max, or tanh(h_first W + b)

Source: J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", NAACL 2019 (arXiv 1810.04805), over the encoder of A.
Vaswani et al., "Attention Is All You Need", NeurIPS 2017; `bert.py` has the settings of BERT.

Axis letters: B batch, T length, V vocabulary, d model width, O outputs of a token, C classes.
"""

from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.needs import Need
from attnlab.attention.view import View
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers import NORMS
from attnlab.layers.dense import Dense, SharedOutput
from attnlab.layers.feedforward import ACTIVATIONS
from attnlab.layers.initial import Embed
from attnlab.layers.norms import Norm, apply_norm
from attnlab.systems.protocol import Classifier, System, TokenClassifier
from attnlab.systems.transformers.stack import Ruled, rule_of, segment_positions

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


class TiedHead(SharedOutput):
    """N(act(h W + b)) E^T + c: states [B,T,d] to logits [B,T,V] (Devlin et al. 2019).

    Attributes:
      activation: act, of `layers.feedforward.ACTIVATIONS`.
      norm: makes N.
    """

    activation: Activation
    norm: Callable[..., Norm]

    @nn.compact
    def __call__(self, states: jax.Array, table: jax.Array) -> jax.Array:
        """States [B,T,d] and the embedding [V,d] to logits [B,T,V]."""
        inner = Dense(table.shape[1], name="inner")(states)
        normed = self.norm(name="normalisation")(ACTIVATIONS[self.activation](inner))
        return super().__call__(normed, table)


class EncoderOnly(Ruled, kw_only=True):
    """Base of the encoder-only systems: tokens to states. Not a system by itself, it has no head.
    The fields not named here are those of `Ruled`.

    Attributes:
      types: how many kinds of texts a row may join, each with a vector of its own that is added to
        its tokens; 0 for none.
      normalised_embedding: whether a norm N_e follows the sum of the embeddings.
      dropout: share of embeddings, sub-layer outputs, what is inside the feed-forward layers and
          before a linear head, that training sets to 0.
    """

    feed_forward: Part = "gelu"
    types: int = 0
    normalised_embedding: bool = False

    needs = {"attention": Need(role="self", maps=False, mixes=True)}

    def setup(self) -> None:
        """Creates the embeddings of words and types, positions, layers and the norm of the
        embedding if there is one; raises `UserError` for a negative number of types.
        """
        if self.types < 0:
            raise UserError(f"system.types={self.types}: expected a number of kinds, 0 for none")
        normal = nn.initializers.normal(0.02)
        self.embed = Embed(self.vocabulary, self.word_width, embedding_init=normal)  # type: ignore[attr-defined]
        if self.types:
            self.embed_types = Embed(self.types, self.width, embedding_init=normal)
        super().setup()
        if self.normalised_embedding:
            self.embed_norm = self.normaliser()

    def states(
        self,
        tokens: jax.Array,
        types: jax.Array | None = None,
        segments: jax.Array | None = None,
        trees: jax.Array | None = None,
    ) -> jax.Array:
        """Computes the states h [B,T,d] of tokens [B,T] after all layers, with the numbers [B,T] of
        each token's type and text (`types`, `segments`) and distances in dependency trees [B,T,T]
        if given; raises `UserError` if the positions end before T; see `TokenClassifier.__call__`.

        Raises:
          UserError: rows longer than the positions reach.
        """
        positions = jnp.arange(tokens.shape[1]) if segments is None else segment_positions(segments)
        x = self.embedded(self.embed(tokens), positions)
        if self.types:
            x = x + self.embed_types(jnp.zeros_like(tokens) if types is None else types)
        norm_mask = self.norm_mask(tokens)
        x = self.drop(apply_norm(self.embed_norm, x, norm_mask) if self.normalised_embedding else x)

        def view(number: int) -> View:
            rule = rule_of(self.visibility, number)
            return View(rule, None, self.real(tokens), segments, trees)

        return self.through_layers(x, view, norm_mask)[0]


class Encoder(EncoderOnly, TokenClassifier, kw_only=True):
    """Encoder-only Transformer with a head for every token.

    Attributes:
      head: "linear", or "tied": one more layer, then products with the embedding, for a masked
        language model.
      activation: the nonlinearity of the head "tied".

    Card: Devlin et al., BERT, NAACL 2019, over the encoder of Vaswani et al. 2017.
    """

    head: Literal["linear", "tied"] = "linear"
    activation: Activation = "gelu"

    needs = {"attention": Need(role="self", maps=False, mixes=True, places="trees")}
    reads = frozenset({"types", "segments", "trees", "at"})

    def setup(self) -> None:
        """Creates the layers and the head, linear or tied to the embedding; raises `UserError` if a
        tied head has to give another number of outputs than the vocabulary has.
        """
        super().setup()
        self.out: Any
        if self.head == "linear":
            self.out = Dense(self.outputs)
        elif self.outputs != self.vocabulary:
            raise UserError(
                f"system.head=tied gives a number for each of {self.vocabulary} ids, and"
                f" {self.outputs} are asked for; take system.head=linear"
            )
        else:
            self.out = TiedHead(self.activation, made(NORMS, self.normalisation))

    def __call__(
        self,
        tokens: jax.Array,
        types: jax.Array | None = None,
        segments: jax.Array | None = None,
        trees: jax.Array | None = None,
        at: jax.Array | None = None,
    ) -> jax.Array:
        """See `TokenClassifier.__call__`."""
        return self.read_out(self.states(tokens, types, segments, trees), at)

    def read_out(self, states: jax.Array, at: jax.Array | None) -> jax.Array:
        """Computes the outputs of states [B,T,d] by the head, [B,T,O], or of the tokens `at` [B,P]
        alone, [B,P,O].
        """
        states = states if at is None else jnp.take_along_axis(states, at[..., None], axis=1)
        if self.head == "linear":
            return self.out(self.drop(states))
        return self.out(states, self.embed.embedding)


class EncoderClassifier(EncoderOnly, Classifier, kw_only=True):
    """Encoder-only Transformer with a head for the text, or for a pair of texts, which it reads as
    one row: the beginning of a text, the first text, the second.

    Attributes:
      pooling: the vector of a text: the "mean" of its states, the state of the "first" token, the
        "max" of each unit by itself, or the "pooler" of BERT, tanh(h_first W + b).

    Card: Devlin et al., BERT, NAACL 2019, over the encoder of Vaswani et al. 2017.
    """

    pooling: Literal["mean", "first", "max", "pooler"] = "mean"

    texts = (1, 2)
    map_sides = ("joined", "joined")

    def setup(self) -> None:
        super().setup()
        if self.pooling == "pooler":
            self.pooler = Dense(self.width)
        self.out = Dense(self.classes)

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """See `Classifier.__call__`."""
        tokens, types = joined([source, *([] if target is None else [target])], self)
        states, real = self.states(tokens, types), self.real(tokens)[..., None]
        return self.out(self.drop(self._pooled(states, real)))

    def norm_mask(self, ids: jax.Array) -> jax.Array | None:
        """See `Stacked.norm_mask`; a row that only begins is one of padding."""
        real = super().norm_mask(ids)
        return None if real is None else real & real[:, 1:].any(axis=1, keepdims=True)

    def _pooled(self, states: jax.Array, real: jax.Array) -> jax.Array:
        """Computes a vector [B,d] of states [B,T,d]: the mean or maximum over the tokens where
        `real` [B,T,1] is True, the first state, or tanh of a linear layer of the first.
        """
        match self.pooling:
            case "mean":
                return jnp.where(real, states, 0.0).sum(axis=1) / real.sum(axis=1)
            case "max":
                return jnp.where(real, states, -jnp.inf).max(axis=1)
            case "first":
                return states[:, 0]
        return jnp.tanh(self.pooler(states[:, 0]))


def joined(texts: list[jax.Array], system: System) -> tuple[jax.Array, jax.Array]:
    """Joins the id that begins a text (of `system`) and one or two texts [B,S], [B,T] into one row,
    with padding moved to its end for two; returns the tokens and the number of the text (0 or 1) of
    each, both [B,1+S+T].
    """
    begin = jnp.full((len(texts[0]), 1), system.bos_id, texts[0].dtype)
    tokens = jnp.concatenate([begin, *texts], axis=1)
    types = jnp.concatenate(
        [jnp.zeros_like(begin)] + [jnp.full_like(text, index) for index, text in enumerate(texts)],
        axis=1,
    )
    if len(texts) == 1:
        return tokens, types
    order = jnp.argsort(~system.real(tokens), axis=1, stable=True)  # what is real first
    return jnp.take_along_axis(tokens, order, axis=1), jnp.take_along_axis(types, order, axis=1)
