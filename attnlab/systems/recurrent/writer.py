"""What the recurrent systems share that write a text, whatever they read: layers of words, and a
decoder that goes from word to word.

    x_t         = what word y_{t-1} gives to a step                  of all words at once
    s_t, o_t    = transition(s_{t-1}, x_t, memory)                   one step after another, with one look each
    logits      = generate(words, o, memory)                         of all steps at once

Axis letters: B batch, T target length, V vocabulary, E embedding, M width of what is looked at.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.view import View
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.initial import Embed, Initial
from attnlab.mixers.loops import over_time
from attnlab.systems.protocol import Seq2Seq, Writer, looked


@flax.struct.dataclass
class Encoded:
    """The attention's memory of what was read, and the decoder's first state."""

    attended: Any
    first: Any


@flax.struct.dataclass
class Decoding:
    """Tokens fed so far, [] int32; the state of the decoder; the last context [B,M], which may be
    None where no step reads it; what the looks so far leave to the next
    (`Attention.initial_history`).
    """

    fed: jax.Array
    state: Any
    context: Any
    looks: Any


class RecurrentWriter(Writer):
    """Base of the recurrent systems that write; not a system by itself. A subclass names its mechanism
    `search`, and says what a step and the output are; one that can do better than step by step has
    its own `decode` and `step`.
    """

    @nn.nowrap
    def add_word_layers(
        self, initial: Initial, embedding_init: Any, embedding: int, dropout: float
    ) -> Any:
        """Adds, in `setup`, the embedding of the target, the output layer and dropout; returns a
        factory that makes an embedding table of the same kind for a vocabulary of any size.

        Args:
          initial: starts the output layer.
          embedding_init: starts the table.
          embedding: E, its width.
          dropout: rate of the dropout `drop`.
        """
        table = functools.partial(Embed, features=embedding, embedding_init=embedding_init)
        self.embed_target: Any = table(self.target_vocabulary)
        self.out: Any = Dense(self.target_vocabulary, kernel_init=initial.output())
        self.drop: Any = Dropout(dropout)
        return table

    def transition(self, state: Any, word: Any, memory: Any) -> tuple[Any, Any]:
        """Computes one step from the state before it, with what a word gives to the step [B,...]
        and the memory: returns the next state and what `generate` is given of the step, arrays
        [B,...].
        """
        raise NotImplementedError

    def generate(self, words: jax.Array, steps: Any, memory: Any) -> jax.Array:
        """Computes logits [B,T,V] from words [B,T,E] and what `transition` gave of each of the
        `steps`, arrays [B,T,...].
        """
        raise NotImplementedError

    def embedded(self, tokens: jax.Array) -> jax.Array:
        """Target tokens [B,T] to words [B,T,E]."""
        words: jax.Array = self.drop(self.embed_target(tokens))
        return words

    def inputs(self, words: jax.Array) -> jax.Array:
        """Words [B,T,E] to what they give to steps, [B,T,...]."""
        terms: jax.Array = self.of_word(words)  # type: ignore[attr-defined]
        return terms

    def start(self, memory: Any, length: int) -> Any:
        """See `Writer.start`."""
        return self.begun(memory)

    def begun(self, memory: Any, state: Any = None, context: Any = None) -> Decoding:
        """Returns the state before the first word, which begins with `state`, by default the first
        one of the memory, and the `context`.
        """
        looks = self.search.initial_history(memory.attended)  # type: ignore[attr-defined]
        state = memory.first if state is None else state
        return Decoding(jnp.zeros((), jnp.int32), state, context, looks)

    def look(self, query: jax.Array, memory: Any, state: Decoding) -> tuple[jax.Array, Any]:
        """Looks at the memory with the query [B,...] of a step, after the looks of `state`: returns
        the context [B,M] and the history for the next look.
        """
        view = View(positions=state.fed)
        search: Any = self.search  # type: ignore[attr-defined]
        reading = search.read(query[:, None], memory.attended, view, history=state.looks)
        return looked(self, reading)[:, 0], reading.history

    def decode(self, memory: Any, target_in: jax.Array) -> jax.Array:
        """See `Writer.decode`; only the recurrence itself runs step by step."""
        words, state = self.embedded(target_in), self.start(memory, target_in.shape[1])
        return self.generate(words, self.all_steps(state, self.inputs(words), memory), memory)

    def all_steps(self, state: Any, inputs: jax.Array, memory: Any) -> Any:
        """Computes every `transition` from a first state, with inputs [B,T,...]: what each step
        gives, arrays [B,T,...].
        """
        scan = over_time(lambda system, *step: system.transition(*step))
        return scan(self, state, inputs, memory)[1]

    def step(self, state: Any, memory: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        """See `Writer.step`."""
        words = self.embedded(tokens[:, None])
        state, steps = self.transition(state, self.inputs(words)[:, 0], memory)
        steps = jax.tree.map(lambda leaf: leaf[:, None], steps)
        return self.generate(words, steps, memory)[:, 0], state


class DeepWriter(RecurrentWriter, Seq2Seq, kw_only=True):
    """Base of the systems for texts whose output is deep: a layer of state, last word and context
    before the logits. Not a system by itself.

    Attributes:
      embedding: E, the width of the embeddings of words, source and target alike.
      decoder: the width of the decoder's state.
      normal: weights but the recurrent ones and the mechanism's start N(0, normal^2), the papers'
        being 0.01; 0 for Glorot's initializer.
      dropout: rate on the embeddings, what is read of the source and the layer before the output.
    """

    embedding: int = 64
    decoder: int = 128
    normal: float = 0.0
    dropout: float = 0.0

    @nn.nowrap
    def add_deep_layers(self, units: int) -> tuple[Initial, Callable[..., Dense]]:
        """Adds, in `setup`, what `add_word_layers` does, the embedding of the source, and the layers
        of so many units before the output; returns the initializers, and a factory of layers that
        start by them.
        """
        initial = Initial(normal=self.normal)
        start = initial.embedding(self.embedding)
        table = self.add_word_layers(initial, start, self.embedding, self.dropout)
        self.embed_source = table(self.source_vocabulary)
        dense = functools.partial(Dense, kernel_init=initial.kernel())
        self.out_state = dense(units)
        self.out_word = dense(units, use_bias=False)
        self.out_context = dense(units, use_bias=False)
        return initial, dense

    def deep_units(self, states: jax.Array, words: jax.Array, of_contexts: jax.Array) -> jax.Array:
        """Computes the units [B,T,u] before the output of states [B,T,...], words [B,T,E] and what
        contexts give to them, [B,T,u] or [B,1,u].
        """
        return self.out_state(states) + self.out_word(words) + of_contexts

    def maxout_logits(self, units: jax.Array) -> jax.Array:
        """Units [B,T,2l] to logits [B,T,V], of the larger of each pair."""
        pairs = units.reshape(*units.shape[:-1], -1, 2)
        return self.out(self.drop(pairs.max(axis=-1)))  # type: ignore[no-any-return]
