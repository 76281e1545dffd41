"""Looks that depend on earlier looks, and the state that each passes to the next.

    history = mechanism.initial_history(memory)                      before the first look
    reading = mechanism.read(query_i, memory, ..., history)
    history = reading.history                                        before the next one

Two kinds of parts depend on earlier looks: a score whose `looks_back` is True, and an alignment of
the form "look". Their state is a tree of arrays with leading axis B; a decoder keeps it in its own
state. A look with several queries computes them in order, so it equals one look after the other.

Axis letters: B batch, H heads, Tq queries, Tk keys, d context width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import flax.struct
import jax

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import Attention, Reading
from attnlab.attention.scores.protocol import Score
from attnlab.attention.view import View


@flax.struct.dataclass
class History:
    """The states of score and alignment between looks; None for a part without one."""

    score: Any = None
    alignment: Any = None


def refusal(score: type) -> str:
    """The error text for a score that depends on earlier looks in a mechanism that does not support
    it.
    """
    return (
        f"the score {score.__name__} depends on earlier looks, which this mechanism does not carry"
        " on; choose 'additive', or the mechanism 'single' or 'multihead'"
    )


def pairs_of(score: Score, history: History | None) -> Callable[[Any, Any, jax.Array], jax.Array]:
    """`score.pairs` of one query [B,K,H/K,A] and keys [B,K,Tk,A], after the looks so far."""
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
    """The reading of queries [B,Tq,dq] one after the other, by `mechanism.read` of one query.

    For parts whose scores depend on the weights of the query before. Maps are recorded once, for
    all queries.
    """
    i = view.onto(memory, query).i

    def step(mechanism: Attention, history: Any, here: Any) -> tuple[Any, Any]:
        at, asked = here
        seen = dataclasses.replace(view, positions=at)
        reading = mechanism.read(asked[:, None], memory, seen, weights=True, history=history)
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
