"""The layer of the Long Short-Term Memory-Network (Cheng et al. 2016): an LSTM that attends to its
earlier states.

The slots i = 0, ..., t-1 hold the hidden states h_i and the memory cells c_i of the steps before.
At step t, with the word x_t:

    s_t        = weights of attention(question, slots found by h_i)     question [x_t ; h~_{t-1}], or x_t alone; any registered mechanism
    h~_t, c~_t = sum_i s_ti h_i, sum_i s_ti c_i                         the same weights for both
    i, f, o, g = sigmoid, sigmoid, sigmoid, tanh of (x_t W + h~_t U + b)
    c_t        = f * c~_t + i * g           h_t = o * tanh(c_t)         which become slot t

In the paper s_t is the softmax of v . tanh(h_i W_h + x_t W_x + h~_{t-1} W_s), the additive score
without biases. If all the weight is on slot t - 1, this is an LSTM. `FusedLSTMNLayer` also attends
to a second sequence, with states gamma_j and cells alpha_j:

    gamma~_t, alpha~_t = sum_j p_tj gamma_j, sum_j p_tj alpha_j         p_t by a mechanism of its own, question [x_t ; gamma~_{t-1}]
    r_t        = sigmoid(x_t W_r + gamma~_t U_r + b_r)
    c_t        = r_t * alpha~_t + f * c~_t + i * g

Products with x_t are computed outside the loop, except that of the question, which belongs to the
mechanism. In the authors' code slot 0 holds zeros, so that a step can use an empty past; the
paper's sums have no such slot, and the first step reads zeros. Steps of padding fill no slot. Cost:
N slots for each of T steps, O(T N (A + H)) FLOPs; gradients store O((T + N) (A + H)) numbers and
compute every step twice. Source: J. Cheng, L. Dong, M. Lapata, "Long Short-Term Memory-Networks for
Machine Reading", EMNLP 2016 (arXiv 1601.06733), sections 3-4.

Axis letters: B batch, T time, N slots, E input width, H state width.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.interventions import intervening
from attnlab.attention.protocol import LOSSES, MAPS, Attention, Reading
from attnlab.attention.view import View
from attnlab.attention.visibility import Causal, Prefix, Rule, Window
from attnlab.errors import UserError
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import GATES, GateInputs, LSTMCell, LSTMState
from attnlab.mixers.loops import over_time, taped

Origin = Literal["zeros", "none"]
Question = Literal["word and summary", "word"]


@flax.struct.dataclass
class Slots:
    """h and c of N steps, [B,N,H] each, and which of them are not padding, [B,N] bool."""

    hidden: jax.Array
    cells: jax.Array
    filled: jax.Array

    @classmethod
    def empty(cls, rows: int, number: int, width: int) -> "Slots":
        """Creates `Slots` with hidden states and cells of zeros, both [rows,number,width], and
        `filled` [rows,number], False for all.
        """
        return cls(
            jnp.zeros((rows, number, width)),
            jnp.zeros((rows, number, width)),
            jnp.zeros((rows, number), bool),
        )

    @classmethod
    def holding(cls, state: LSTMState) -> "Slots":
        """One slot."""
        return cls(state.h[:, None], state.c[:, None], jnp.ones((len(state.h), 1), bool))

    def then(self, later: "Slots") -> "Slots":
        """Concatenates these slots and later ones along time."""
        return jax.tree.map(
            lambda old, new: jnp.concatenate([old.astype(new.dtype), new], axis=1), self, later
        )


@flax.struct.dataclass
class Reader:
    """The state of a layer in a text.

    Attributes:
      fed: [] int32, steps so far.
      memory: the mechanism's, of all slots.
      last: h and c of the last real step, [B,H] each.
      summary: h~ of it, [B,H].
      aligned: gamma~ of it, [B,H]; None without a second sequence.
      looks: what the looks at a second sequence so far leave to the next
        (`Attention.initial_history`).
    """

    fed: jax.Array
    memory: Any
    last: LSTMState
    summary: jax.Array
    aligned: jax.Array | None = None
    looks: Any = None


def sight(span: int | None, origin: Origin) -> Rule:
    """Builds the rule for which slots a step may see: the last `span` ones (None: all), and slot 0
    if it holds zeros (`origin` "zeros"); raises UserError for a span below 1.
    """
    if span is None:
        return Causal()
    if span < 1:
        raise UserError(f"lstmn: span={span}, must be at least 1, or None for all that was read")
    near = Window(span + 1)  # relative to the slot that the step fills
    return Causal() & (near | Prefix(1) if origin == "zeros" else near)


class LSTMNLayer(nn.Module):
    """An LSTMN over a padded sequence; the state is copied through padding.

    Attributes:
      attention: factory of the mechanism, which must take values apart from keys, without
        projecting them, with weights that sum to at most one: the next step continues from c~, so
        any factor would grow from step to step. Called with width 2 H, for h~ and c~ concatenated.
      width: H.
      span: how many earlier steps can be seen; None for all.
      origin: whether there is a slot 0 with zeros.
      question: the query: "word and summary" (the paper) or "word" (the authors' encoder).
      initial: how the weights start, except those of the mechanism.
    """

    attention: Callable[..., Attention]
    width: int
    span: int | None
    origin: Origin
    question: Question
    initial: Initial

    def setup(self) -> None:
        self.of_input = GateInputs(self.width, self.initial)
        self.cell = LSTMCell(self.width, self.initial)
        self.look = self.attention(width=2 * self.width, name="attention")

    def __call__(
        self,
        x: jax.Array,
        valid: jax.Array,
        past: Slots | None = None,
        summary: jax.Array | None = None,
        first: LSTMState | None = None,
        other: Any = None,
    ) -> tuple[Slots, Reader]:
        """Reads texts x [B,T,E], real at `valid` [B,T], step by step, after the slots `past` and
        the context `summary` of earlier parts if any; returns the `Slots` (h, c) of the steps and
        the `Reader`, the layer's state after them; `first` fills slot 0, `other` is a memory of a
        second sequence.

        Args:
          past: slots of earlier parts of the same text; default none.
          summary: h~ [B,H] of their last step; default zeros.
          first: the content of slot 0 instead of zeros, if there is a slot 0.
          other: the mechanism's memory of a second sequence, for `FusedLSTMNLayer`.
        """

        reader = self.begin(x.shape[0], x.shape[1], x.dtype, past, first, other)
        if summary is not None:
            reader = reader.replace(summary=summary.astype(x.dtype))  # type: ignore[attr-defined]
        aside = any(map(self.is_mutable_collection, ("params", MAPS, SAMPLES, LOSSES)))
        collecting = aside or intervening()
        inputs = x, self.contributions(x), valid
        reader, states = (
            self._scan(reader, inputs, other) if collecting else self._tape(reader, inputs, other)
        )
        return Slots(states.h, states.c, valid), reader

    def _scan(self, reader: Reader, inputs: Any, other: Any) -> tuple[Reader, LSTMState]:
        """Runs all steps of `inputs` (words [B,T,E], their contributions, bool [B,T] True at real
        words) from the state `reader` in a loop that collects attention maps and losses; returns
        the last reader, and an `LSTMState`, h, c [B,T,H]; `other`: a second text's memory or None.

        Args:
          reader: the state before the first step.
          inputs: words [B,T,E], their `contributions`, and which are real, [B,T].
          other: the mechanism's memory of a second sequence, None without one.
        """

        def step(
            layer: LSTMNLayer, reader: Reader, inputs: Any, other: Any
        ) -> tuple[Reader, LSTMState]:
            """Reads one word, and returns the new reader and its h and c."""
            word, terms, real = inputs
            reader = layer.step(reader, word, terms, real, other)
            return reader, reader.last

        return over_time(step)(self, reader, inputs, other)

    def _tape(self, reader: Reader, inputs: Any, other: Any) -> tuple[Reader, LSTMState]:
        """Runs all steps as `_scan` does, with the same arguments and result, but without
        collecting maps and losses, and with gradients that take less memory and time (see `tape`).
        """
        layer = self.clone(parent=None)

        def step(
            params: Any, state: Reader, memory: Any, inputs: Any, other: Any
        ) -> tuple[Reader, Any]:
            """Reads one word as a function of parameters, state and tape, and returns the new state
            and tape.
            """
            (word, terms, real), keys = inputs
            state = dataclasses.replace(state, memory=memory)
            reader: Any = layer.apply(
                {"params": params}, state, word, terms, real, other, rngs=keys, method="step"
            )
            return reader.replace(memory=None), reader.memory

        steps = inputs[0].shape[1]
        keys = {
            name: jax.random.split(self.make_rng(name), steps)
            for name in ("dropout", "sample")
            if self.has_rng(name)
        }
        inputs = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), inputs), keys
        first = dataclasses.replace(reader, memory=None)
        states, last, memory = taped(
            step, self.variables["params"], first, reader.memory, inputs, other
        )
        return dataclasses.replace(last, memory=memory), jax.tree.map(
            lambda leaf: jnp.swapaxes(leaf, 0, 1), states.last
        )

    def begin(
        self,
        rows: int,
        room: int,
        dtype: Any,
        past: Slots | None = None,
        first: LSTMState | None = None,
        other: Any = None,
    ) -> Reader:
        """Creates the `Reader` before the first of `room` steps in `rows` texts: its memory has
        slot 0 (`first`, else zeros if `origin` is "zeros", else no such slot), then the slots
        `past` of earlier parts if any, and capacity for the steps; `other` is for subclasses. See
        `__call__`.
        """
        last = LSTMState.zeros(rows, self.width, dtype)
        slots = Slots.empty(rows, 0, self.width) if past is None else past
        if self.origin == "zeros" or first is not None:
            slots = Slots.holding(last if first is None else first).then(slots)
        hidden, cells = slots.hidden.astype(dtype), slots.cells.astype(dtype)
        capacity = hidden.shape[1] + room
        memory = self.look.remember_pairs(
            hidden, jnp.concatenate([hidden, cells], axis=-1), slots.filled, capacity
        )
        return Reader(
            jnp.zeros((), jnp.int32),
            memory.replace(length=jnp.asarray(memory.length)),
            last,
            last.h,
        )

    def contributions(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """Computes what inputs [...,E] contribute to the gates, for all steps at once."""
        return (self.of_input(x),)

    def step(
        self,
        reader: Reader,
        word: jax.Array,
        terms: tuple[jax.Array, ...],
        real: jax.Array,
        other: Any = None,
    ) -> Reader:
        """Reads one `word` [B,E], with `contributions` `terms`, in the state `reader`: attends to
        earlier slots, updates h and c by the LSTM's gates where `real` [B], and appends them to the
        memory; returns the new `Reader`; `other`: memory of a second sequence or None.

        Args:
          reader: the state after the word before.
          word: [B,E].
          terms: `contributions` of the word.
          real: [B] bool; rows that are padding keep their state.
          other: the mechanism's memory of a second sequence, None without one.
        """
        parts = [word] if self.question == "word" else [word, reader.summary]
        query = jnp.concatenate(parts, axis=-1)
        visibility = View(sight(self.span, self.origin), positions=reader.memory.length)
        h, c = jnp.split(
            self.context(self.look.read(query[:, None], reader.memory, visibility)), 2, axis=-1
        )
        added, aligned, looks = self.fuse(reader, word, terms, other)
        state = _next_state(terms[0] + h @ self.cell.past, c, added)
        memory = self.look.extend_pairs(
            reader.memory,
            state.h[:, None],
            jnp.concatenate([state.h, state.c], axis=-1)[:, None],
            real[:, None],
        )
        new = state, h, aligned, looks
        old = reader.last, reader.summary, reader.aligned, reader.looks

        def where_real(updated: jax.Array, previous: jax.Array) -> jax.Array:
            return jnp.where(real.reshape(-1, *[1] * (updated.ndim - 1)), updated, previous)

        carried = jax.tree.map(where_real, new, old)
        return Reader(reader.fed + 1, memory, *carried)

    def fuse(
        self, reader: Reader, word: jax.Array, terms: tuple[jax.Array, ...], other: Any
    ) -> tuple[jax.Array | float, jax.Array | None, Any]:
        """Returns the term that a second sequence adds to the cell [B,H], gamma~ [B,H], and the
        history of looks at it: here 0, None and that of `reader`. The arguments are those of
        `step`.
        """
        return 0.0, None, reader.looks

    def context(self, reading: Reading) -> jax.Array:
        """Returns the context [B,d] of a reading with one query; its losses go to the collection
        "losses", while that is mutable.
        """
        if reading.losses and not self.is_initializing():
            self.sow(LOSSES, "looks", reading.losses)
        return reading.context[:, 0]


class FusedLSTMNLayer(LSTMNLayer):
    """An LSTMN with deep fusion: the context from a second sequence enters the cell through its own
    gate.

    Attributes:
      inter_attention: factory of the mechanism for the second sequence; called with width 2 H, for
        gamma~ and alpha~ concatenated.
    """

    inter_attention: Callable[..., Attention]

    def setup(self) -> None:
        """Creates the parameters of `LSTMNLayer`, the mechanism that attends to the second
        sequence, and its gate.
        """
        super().setup()
        initializer = self.initial.kernel()
        self.search = self.inter_attention(width=2 * self.width, name="inter_attention")
        self.gate_word = Dense(self.width, kernel_init=initializer)
        self.gate_found = Dense(self.width, use_bias=False, kernel_init=initializer)

    def remember(self, other: Slots) -> Any:
        """The mechanism's memory of the second sequence."""
        return self.search.remember_pairs(
            other.hidden, jnp.concatenate([other.hidden, other.cells], axis=-1), other.filled
        )

    def begin(
        self,
        rows: int,
        room: int,
        dtype: Any,
        past: Slots | None = None,
        first: LSTMState | None = None,
        other: Any = None,
    ) -> Reader:
        """See `LSTMNLayer.begin`."""
        reader = super().begin(rows, room, dtype, past, first, other)
        return dataclasses.replace(
            reader, aligned=jnp.zeros_like(reader.summary), looks=self.search.initial_history(other)
        )

    def contributions(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """See `LSTMNLayer.contributions`."""
        return *super().contributions(x), self.gate_word(x)

    def fuse(
        self, reader: Reader, word: jax.Array, terms: tuple[jax.Array, ...], other: Any
    ) -> tuple[jax.Array | float, jax.Array | None, Any]:
        """Attends to the second sequence (its memory `other`) from `word` [B,E] and the last
        context in the state `reader`; returns the cell [B,H] to add to c, times a gate computed
        from `terms` and the new context, that context [B,H], and the attention's history for the
        next step.
        """
        assert reader.aligned is not None
        query = jnp.concatenate([word, reader.aligned], axis=-1)[:, None]
        view = View(positions=reader.fed)
        reading = self.search.read(query, other, view, history=reader.looks)
        hidden, cell = jnp.split(self.context(reading), 2, axis=-1)
        added = jax.nn.sigmoid(terms[1] + self.gate_found(hidden)) * cell
        return added, hidden, reading.history


def _next_state(contribution: jax.Array, c: jax.Array, added: jax.Array | float) -> LSTMState:
    """Returns the next state from the sum of contributions to the gates [B,4H], the cell c [B,H]
    of the step before, and the term `added` to the new cell (a number or [B,H]).
    """
    i, f, o, g = jnp.split(contribution, GATES, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g) + added
    return LSTMState(c, jax.nn.sigmoid(o) * jnp.tanh(c))
