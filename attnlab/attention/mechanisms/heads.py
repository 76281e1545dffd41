"""The base of mechanisms whose heads weigh the values of a memory: what is alike around every look.

    look              what the scores, the alignment and the values of this mechanism are
    attend            a kernel computes the context of each head
    result            the contexts of all heads become one

Looks that depend on earlier looks, and the state that each passes to the next.

    history = mechanism.initial_history(memory)                      before the first look
    reading = mechanism.read(query_i, memory, ..., history)
    history = reading.history                                        before the next one

Two kinds of parts depend on earlier looks: a score whose `looks_back` is True, and an alignment of
the form "look". Their state is a tree of arrays with leading axis B; a decoder keeps it in its own
state. A look with several queries computes them in order, so it equals one look after the other.

Axis letters: B batch, H heads, Tq queries, Tk keys, Dv value width, d width of the context.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.kernels.plain import AttentionInputs, attend
from attnlab.attention.protocol import Attention, Reading
from attnlab.attention.scores.protocol import Score
from attnlab.attention.view import EVERYTHING, View
from attnlab.config.registry import Parts, made
from attnlab.errors import UserError
from attnlab.layers.dense import Dropout, inner_dtype, joined


@flax.struct.dataclass
class History:
    """The states of score and alignment between looks; None for a part without one."""

    score: Any = None
    alignment: Any = None


def refusal(score: type) -> str:
    """Returns the error text for a score that depends on earlier looks, in a mechanism that does
    not support it.
    """
    return (
        f"the score {score.__name__} depends on earlier looks, which this mechanism does not carry"
        " on; choose 'additive', or the mechanism 'single' or 'multihead'"
    )


def pairs_of(score: Score, history: History | None) -> Callable[[Any, Any, jax.Array], jax.Array]:
    """Returns a function of queries [B,K,n,A] (n of H/K heads and Tq queries), keys [B,K,Tk,A] and
    key positions that computes their scores [B,K,n,Tk]: `score.pairs` itself, or, if
    `history.score` is not None, the same with this state of earlier queries passed on.
    """
    if history is None or history.score is None:
        return score.pairs
    past = history.score

    def pairs(q: Any, k: Any, j: jax.Array) -> jax.Array:
        rows, heads, slots = past.shape
        grouped = past.reshape(rows, k.shape[1], heads // k.shape[1], slots)
        return score.pairs(q, k, j, grouped)  # type: ignore[call-arg]  # it looks back

    return pairs


def one_by_one(
    mechanism: Attention,
    query: jax.Array,
    memory: Any,
    view: View,
    weights: bool,
    history: Any,
) -> Reading:
    """Calls `mechanism.read` on the memory with each of the queries [B,Tq,dq] in turn, in a scan
    that passes its history on, and returns one `Reading` of all queries, with weights if `weights`
    is true or maps are recorded.

    For parts whose scores depend on the weights of the query before. Maps are recorded once, for
    all queries.
    """
    i = view.onto(memory, query).i

    def step(mechanism: Attention, history: Any, inputs: Any) -> tuple[Any, Any]:
        """Reads with one query, whose position and vector are the `inputs`, and passes on the
        history for the next.
        """
        position, vector = inputs
        step_view = dataclasses.replace(view, positions=position)
        reading = mechanism.read(vector[:, None], memory, step_view, weights=True, history=history)
        assert reading.weights is not None
        losses = {name: loss[:, 0] for name, loss in reading.losses.items()}
        return reading.history, (reading.context[:, 0], reading.weights[:, :, 0], losses)

    scan = nn.scan(
        step,
        variable_broadcast="params",
        variable_axes={SAMPLES: 2},
        split_rngs={"params": False, "dropout": True, "sample": True},
        in_axes=((i.ndim - 1, 1),),
        out_axes=(1, 2, 1),
    )
    first = mechanism.initial_history(memory) if history is None else history
    history, (context, head_weights, losses) = scan(mechanism, first, (i, query))
    return Reading(context, mechanism.capture(head_weights, memory, weights), losses, history)


MADE = {"score": "fit", "alignment": "align", "positions": "scheme"}
"""Fields of `made_parts`, and what the part is called once it is made."""


class HeadsAttention(Attention):
    """Base of a mechanism that computes one weight for each head, query and key. A subclass has
    `alignment`, `dropout` and `kernel` among its fields, and implements `arrays` and `look`; its
    projection of the heads side by side is `out`, unless it implements `result`.

    Attributes of the class:
      made_parts: the parts that `setup` makes, those of `parts` with the fields of `MADE` unless a
        class says otherwise; a class below that has more parts makes them itself, and one that hides
        a part from configs changes `parts` alone.
    """

    made_parts: ClassVar[Parts] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Sets `made_parts` of the first class with parts, for itself and the classes below."""
        if not cls.made_parts:
            cls.made_parts = {name: cls.parts[name] for name in MADE if name in cls.parts}
        super().__init_subclass__(**options)

    def setup(self) -> None:
        for field, table in self.made_parts.items():
            setattr(self, MADE[field], made(table, getattr(self, field))(name=field))
        self.drop = Dropout(self.dropout)

    def formed(self, memory: Any) -> Any:
        """A memory in the form that `look` takes; a subclass that keeps other arrays computes it
        from them.
        """
        return memory

    def look(
        self, query: jax.Array, memory: Any, view: View, history: Any = None
    ) -> AttentionInputs:
        """The input of a kernel for a query [B,Tq,dq], a memory and the state of earlier looks."""
        raise NotImplementedError

    def join(self, context: jax.Array, query: jax.Array) -> jax.Array:
        """The contexts of the heads [B,H,Tq,Dv] concatenated, [B,Tq,H*Dv]: the input of the output
        projection.
        """
        return joined(context)

    def result(self, context: jax.Array, query: jax.Array, look: AttentionInputs) -> jax.Array:
        """The contexts of the heads [B,H,Tq,Dv] to the context [B,Tq,d]."""
        return self.out(self.join(context, query))  # type: ignore[no-any-return]

    def losses(self, weights: jax.Array | None) -> dict[str, jax.Array]:
        """`Reading.losses` of the weights [B,H,Tq,Tk]."""
        return {}

    @nn.nowrap
    def size(self) -> int:
        """D, the width of a head."""
        return getattr(self, "head_width", 0) or self.width // self.heads  # type: ignore[no-any-return]

    @nn.nowrap
    def weighing(self) -> int:
        """H, how many weights a query has for each key."""
        return self.heads

    def read(
        self,
        query: jax.Array,
        memory: Any,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Computes attention of a query [B,Tq,dq] to a memory under a view with the mechanism's
        kernel (query by query if the score depends on earlier ones), and returns a `Reading` of
        context, weights (if requested or recorded), losses and history. See `Attention.read`.
        """
        memory = self.formed(memory)
        history = self.initial_history(memory) if history is None else history
        looks_back = "score" in self.made_parts and self.fit.looks_back
        if history is not None and looks_back and query.shape[1] != 1:
            return one_by_one(self, query, memory, view, weights, history)
        look = self.look(query, memory, view, history)
        context, head_weights, history = attend(self, look, self.kernel, weights)
        return Reading(
            self.result(context, query, look),
            self.capture(head_weights, memory, weights),
            self.losses(head_weights),
            history,
        )

    def initial_history(self, memory: Any) -> History | None:
        """Creates the `History`, the states of score and alignment, before the first query on a
        memory, or None if neither depends on earlier queries; if the mechanism does not support
        such dependence, raises UserError for the score's and returns None for the alignment's. See
        `Attention.initial_history`.

        Raises:
          UserError: the score depends on earlier looks, and the mechanism does not support it.
        """
        looks_back = "score" in self.made_parts and self.fit.looks_back
        is_look = self.align.form == "look"
        supported = self.capabilities.history
        if looks_back and not supported:
            raise UserError(f"{type(self).__name__}: {refusal(type(self.fit))}")
        if not supported or not (looks_back or is_look):
            return None
        formed = self.formed(memory)
        keys = getattr(formed, "keys", getattr(formed, formed.array_names()[0]))
        shape = (memory.valid.shape[0], self.weighing(), memory.valid.shape[1])
        return History(
            self.fit.initial_history(keys, self.weighing()) if looks_back else None,
            self.align.initial_history(shape, inner_dtype(keys)) if is_look else None,
        )
