"""Hierarchical co-attention: image and question look at each other, for the words of the question,
for its phrases, and for its states.

    word       Q^w_t = embedding of word t                                                    [S,d]
    phrase     Q^p_t = max over s = 1, 2, 3 of tanh([Q^w_t ; ... ; Q^w_{t+s-1}] W_s + b_s)      [S,d]
    sentence   Q^s_t = the states of an LSTM over Q^p                                         [S,d]
    V_l        = tanh(f_l W_I + b_I)                                                          [L,d]

    of each    C    = tanh(Q W_b V^T)                                                         [S,L]
               H^v  = tanh(V W_v + C^T (Q W_q))          H^q = tanh(Q W_q + C (V W_v))
               a^v  = softmax over l of w_v . H^v_l      a^q = softmax over t of w_q . H^q_t    any registered mechanism
               v    = sum over l of a^v_l V_l            q   = sum over t of a^q_t Q_t

    h^w        = tanh((q^w + v^w) W_w + b_w)
    h^p        = tanh([q^p + v^p ; h^w] W_p + b_p)
    h^s        = tanh([q^s + v^s ; h^p] W_s + b_s)
    logits     = h^s W_h + b_h

Source: J. Lu, J. Yang, D. Batra, D. Parikh, "Hierarchical Question-Image Co-Attention for Visual
Question Answering", NeurIPS 2016, equations 1 to 4 and 7, parallel co-attention. Each level has
weights of its own. What a mechanism other than `single` with the score `dot` makes of keys H, values
V or Q and a learned query w is its own. Not here: alternating co-attention.

Axis letters: B batch, S tokens of the question, L places, d width, k units of H, C classes.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.errors import UserError, nearest
from attnlab.layers.dense import Dense
from attnlab.systems.protocol import Side, looked
from attnlab.systems.vision.answering import Answerer, per_question

Factory = Callable[..., Attention]
LEVELS = ("word", "phrase", "sentence")
WINDOWS = (1, 2, 3)  # words of a phrase


class Together(nn.Module):
    """Image and question look at each other: V [B,L,d] and Q [B,S,d] to v and q [B,d].

    Attributes:
      width: d. hidden: k.
      image_attention, question_attention: factories of the mechanisms.
    """

    width: int
    hidden: int
    image_attention: Factory
    question_attention: Factory

    @nn.compact
    def __call__(
        self, places: jax.Array, words: jax.Array, valid: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Computes parallel co-attention of places V [B,L,d] and words Q [B,S,d], of which `valid`
        [B,S] are real: the context of the image and that of the question, both [B,d].
        """
        words = jnp.where(valid[..., None], words, 0.0)
        related = Dense(self.width, use_bias=False, name="affinity")(words)
        affinity = jnp.tanh(jnp.einsum("bsd,bld->bsl", related, places))
        of_places = Dense(self.hidden, use_bias=False, name="of_places")(places)
        of_words = Dense(self.hidden, use_bias=False, name="of_words")(words)
        image_keys = jnp.tanh(of_places + jnp.einsum("bsl,bsk->blk", affinity, of_words))
        word_keys = jnp.tanh(of_words + jnp.einsum("bsl,blk->bsk", affinity, of_places))
        return (
            self._attend("image", self.image_attention, image_keys, places, None),
            self._attend("question", self.question_attention, word_keys, words, valid),
        )

    @nn.nowrap
    def _attend(
        self,
        side: str,
        factory: Factory,
        keys: jax.Array,
        values: jax.Array,
        valid: jax.Array | None,
    ) -> jax.Array:
        """Computes the context [B,d] of a learned query that attends to `keys` [B,N,k] and `values`
        [B,N,d], real at `valid` [B,N], with a mechanism of `factory`; `side` ("image" or
        "question") names its parameters.
        """
        initializer = nn.initializers.normal(self.hidden**-0.5)
        query = self.param(f"{side}_query", initializer, (self.hidden,))
        asks = jnp.broadcast_to(query, (len(keys), 1, self.hidden)).astype(keys.dtype)
        look = factory(width=self.width, name=f"{side}_attention")
        return looked(self, look.read(asks, look.remember_pairs(keys, values, valid)))[:, 0]  # type: ignore[arg-type]


class Phrases(nn.Module):
    """Words [B,S,d], 0 at padding, to phrases [B,S,d] that begin with them, of up to three words.

    Attributes:
      width: d.
    """

    width: int

    @nn.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        """Computes phrases [B,S,d] of words [B,S,d]: the elementwise maximum of three tanh layers,
        over the one, two and three words that begin at each.
        """
        phrases = []
        for size in WINDOWS:
            padded = jnp.pad(words, ((0, 0), (0, size - 1), (0, 0)))
            window = [padded[:, start : start + words.shape[1]] for start in range(size)]
            of_window = Dense(self.width, name=f"of_{size}")
            phrases.append(jnp.tanh(of_window(jnp.concatenate(window, axis=-1))))
        return jnp.stack(phrases).max(axis=0)


class CoAttention(Answerer, kw_only=True):
    """Hierarchical question-image co-attention (Lu et al. 2016).

    Attributes:
      image_attention, question_attention: factories of the mechanisms; called with the width d, with
        H as keys, places or words as values and w as the query.
      width: d, of words, places and states; `embedding` is no matter.
      hidden: k, the width of the layers in which image and question look at each other.
      levels: at which levels of the question it looks, in the order "word", "phrase", "sentence".

    Card: Lu et al., Hierarchical Question-Image Co-Attention, NeurIPS 2016.
    """

    image_attention: Factory
    question_attention: Factory
    hidden: int = 64
    levels: tuple[str, ...] = LEVELS

    parts = {
        **Answerer.parts,
        "image_attention": MECHANISMS,
        "question_attention": MECHANISMS,
    }
    needs = {
        "image_attention": Need(role="cross", padding=False, values=True),
        "question_attention": Need(role="cross", values=True),
    }

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `VisualAnswerer.between`."""
        of_words = name.rpartition("/")[2].startswith("question_attention")
        return ("hops", "question") if of_words else super().between(name)

    def setup(self) -> None:
        """Creates the projection of places, the phrases, a co-attention and a joining layer for
        each level, and the output layer; raises `UserError` for no, unknown, repeated or unordered
        levels.
        """
        strange = [name for name in self.levels if name not in LEVELS]
        if strange:
            raise UserError(f"system.levels: unknown {strange[0]!r}; {nearest(strange[0], LEVELS)}")
        if not self.levels or [name for name in LEVELS if name in self.levels] != list(self.levels):
            raise UserError(
                f"system.levels={self.levels}: expected one or more of {', '.join(LEVELS)}, in this"
                " order"
            )
        super().setup()
        self.of_place = Dense(self.width)
        self.phrases = Phrases(self.width)
        factories = self.image_attention, self.question_attention
        sizes = self.width, self.hidden
        self.together = [Together(*sizes, *factories, name=level) for level in self.levels]
        self.joined = [Dense(self.width, name=f"joined_{level}") for level in self.levels]
        self.out = Dense(self.classes)

    @property
    def word_width(self) -> int:
        """See `Answerer.word_width`: what a level reads is as wide as the places."""
        return self.width

    def __call__(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Computes the logits [B,C] of answers to questions [B,S] about images: co-attention of
        image and question at each level (word, phrase, sentence), joined from the lowest up. See
        `VisualAnswerer.__call__`.
        """
        places = self.drop(jnp.tanh(self.of_place(self.places(images, questions))))
        places, valid = per_question(places, images, questions), self.real(questions)
        hidden: list[jax.Array] = []
        levels = self._levels(questions, valid)
        for level, together, join in zip(self.levels, self.together, self.joined, strict=True):
            image, question = together(places, levels[level], valid)
            hidden = [self.drop(question + image), *hidden]
            hidden = [jnp.tanh(join(jnp.concatenate(hidden, axis=-1)))]
        return self.out(self.drop(hidden[0]))

    def _levels(self, questions: jax.Array, valid: jax.Array) -> dict[str, jax.Array]:
        """Returns the features [B,S,d] of questions, ids [B,S] real at `valid` [B,S], by the names
        "word", "phrase" and "sentence" of the levels, as far as the fields use a level or another
        is made of it.
        """
        words = self.drop(self.embed(questions))
        levels = {"word": words}
        if self.levels != ("word",):
            levels["phrase"] = self.phrases(jnp.where(valid[..., None], words, 0.0))
        if "sentence" in self.levels:
            levels["sentence"] = self.states(levels["phrase"], valid).states
        return levels
