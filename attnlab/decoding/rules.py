"""Rules on the next token, given the tokens so far.

    least length         no EOS before `min_length` tokens are out
    forced               the first token is the one that the vocabulary forces
    repetition penalty   a logit z of a token that occurred: z / r where z > 0, z r where z < 0 (r > 1 makes it rarer)
    no-repeat n-gram     a token that would complete n tokens that occurred in this order is impossible

A rule restricts the search, not the model: it changes the chosen token, but the reported
log-probability is that of the model. EOS may always repeat, and is chosen if nothing else is
possible; what holds for EOS holds for every id that ends a text. "Occurred" means in the generated
tokens, and in the beginning of a text that is continued.

Source: N. S. Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable
Generation", 2019, section 4.1 (repetition penalty; the sign rule is that of later code); R. Paulus,
C. Xiong, R. Socher, "A Deep Reinforced Model for Abstractive Summarization", ICLR 2018, section 2.5
(no-repeat n-gram).

Axis letters: N rows, P longest prompt, L target length, V vocabulary.
"""

import dataclasses

import jax
import jax.numpy as jnp

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.rows import NEVER
from attnlab.decoding.steps import among


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules on the next token; the defaults allow everything.

    Attributes:
      min_length: EOS is impossible before this many tokens are out.
      repetition_penalty: r >= 1; 1 changes nothing.
      no_repeat_ngram: n; 0 allows every repetition.
      prompt: [N,P] int32, the beginnings of the texts, right-padded; None without one.
      special: ids of the vocabulary.
    """

    min_length: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0
    prompt: jax.Array | None = None
    special: Special = OURS

    def __call__(self, logits: jax.Array, tokens: jax.Array, t: jax.Array) -> jax.Array:
        """Returns the logits [N,V] of step `t` (from 0) after the rules on length, repetition and
        the first token, given tokens [N,L] of which the first `t` are written; forbidden ids get
        -inf, but an end stays possible where nothing else is.
        """
        ids = jnp.arange(logits.shape[1])
        unruled, end = logits, among(ids, self.special.ending)
        if self.special.forced is not None:
            logits = jnp.where((t == 0) & (ids != self.special.forced), NEVER, logits)
        if self.min_length:
            logits = jnp.where(end & (t < self.min_length), NEVER, logits)
        if self.repetition_penalty == 1.0 and not self.no_repeat_ngram:
            return logits
        history, real = self._history(tokens, t)
        if self.repetition_penalty != 1.0:
            logits = penalise(logits, history, real, self.repetition_penalty)
        if self.no_repeat_ngram:
            n, room = self.no_repeat_ngram, tokens.shape[1]
            logits = jnp.where(end, logits, forbid_repeats(logits, history, real, t, n, room))
        stuck = ~jnp.isfinite(logits).any(axis=1, keepdims=True)
        return jnp.where(stuck & end, unruled, logits)

    def repeat(self, times: int) -> "Rules":
        """Returns the same rules with every row repeated `times` times."""
        if self.prompt is None or times == 1:
            return self
        return dataclasses.replace(self, prompt=jnp.repeat(self.prompt, times, axis=0))

    def rows(self, places: jax.Array) -> "Rules":
        """The rules of the rows at `places`."""
        if self.prompt is None:
            return self
        return dataclasses.replace(self, prompt=self.prompt[places])

    def _history(self, tokens: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns prompt and tokens joined to ids [N,P+L] without padding between them (it moves to
        the front), and a mask [N,P+L] of the real tokens, those of the prompt and the first `t`
        written; without a prompt P is 0.
        """
        written = jnp.broadcast_to(jnp.arange(tokens.shape[1]) < t, tokens.shape)
        if self.prompt is None:
            return tokens, written
        real = self.prompt != self.special.pad
        width = self.prompt.shape[1]
        # to the right end: column j of a row with k tokens is its column j - (P - k)
        column = jnp.arange(width) - (width - real.sum(axis=1, keepdims=True))
        prompt = jnp.take_along_axis(self.prompt, jnp.maximum(column, 0), axis=1)
        return (
            jnp.concatenate([prompt, tokens], axis=1),
            jnp.concatenate([column >= 0, written], axis=1),
        )


FREE = Rules()
"""Everything may be written."""


def penalise(logits: jax.Array, history: jax.Array, real: jax.Array, penalty: float) -> jax.Array:
    """Applies the repetition penalty r to logits z [N,V] of tokens that occur in `history` [N,M]
    where `real`: z / r where z > 0, else z r.
    """
    rows = jnp.arange(len(logits))[:, None]
    beyond = jnp.where(real, history, logits.shape[1])  # an index that is dropped
    occurred = jnp.zeros(logits.shape, bool).at[rows, beyond].set(True, mode="drop")
    lower = jnp.where(logits > 0, logits / penalty, logits * penalty)
    return jnp.where(occurred, lower, logits)


def forbid_repeats(
    logits: jax.Array, history: jax.Array, real: jax.Array, t: jax.Array, n: int, room: int
) -> jax.Array:
    """Sets to -inf the logits [N,V] of tokens that would complete an n-gram that `history` [N,M]
    already has where `real` [N,M]; the last `room` columns are for new tokens, of which `t` are
    written.

    The real tokens are consecutive and end `room - t` columns before the end: at step `t` of at most
    `room`.
    """
    width = history.shape[1]
    if n > width:
        return logits
    end = width - room + t  # the next column to write
    starts = width - n + 1
    matches = jnp.stack([real[:, n - 1 :]] + [real[:, i : i + starts] for i in range(n - 1)]).all(0)
    for i in range(n - 1):  # whether the n - 1 tokens from each column on equal the last n - 1
        place = end - (n - 1) + i
        last = jnp.take(history, jnp.maximum(place, 0), axis=1)[:, None]
        written = jnp.take(real, jnp.maximum(place, 0), axis=1)[:, None] & (place >= 0)
        matches &= written & (history[:, i : i + starts] == last)
    rows = jnp.arange(len(logits))[:, None]
    completes = jnp.where(matches, history[:, n - 1 :], logits.shape[1])
    return logits.at[rows, completes].set(NEVER, mode="drop")
