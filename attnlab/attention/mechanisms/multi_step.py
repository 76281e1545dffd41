"""Multi-step attention: the same memory is read several times; each context is added to the next
query.

    q_0 = x W_q        q_{n+1} = q_n + context(q_n)        y = q_N - q_0 = sum of the contexts

Source: S. Sukhbaatar, A. Szlam, J. Weston, R. Fergus, "End-To-End Memory Networks", NeurIPS 2015
(arXiv 1503.08895), section 2.2 (its layer-wise form without H); Z. Yang et al., "Stacked Attention
Networks for Image Question Answering", CVPR 2016, adds the same way. Here any mechanism can be
used, every step has the same parameters, and the result does not contain the query: a residual
connection adds it. The losses of all looks are summed. W_q is ours; it makes queries as wide as
contexts. Cost: `steps` reads of one memory. Parameters: dq width more than the mechanism's.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.protocol import Attention, Capabilities, Reading, Rows
from attnlab.attention.view import EVERYTHING, View, Where
from attnlab.config.registry import Part, made
from attnlab.errors import at_least
from attnlab.layers.dense import Dense


class MultiStep(Attention):
    """`steps` looks of one mechanism; the maps of all steps stand side by side as heads
    [B,steps*H,Tq,Tk].

    Attributes:
      looks: the mechanism.
      steps: N, how many looks.

    Card: hops; Sukhbaatar et al., End-To-End Memory Networks, NeurIPS 2015; time N (T^2 d + T d^2);
    state T d; path 1; steps N.
    """

    looks: Part = "multihead"
    steps: int = 2

    parts = {"looks": MECHANISMS}
    capabilities = Capabilities(history=True, window=True)

    @nn.nowrap
    def rows(self) -> Rows:
        """See `Attention.rows`."""
        inner = made(MECHANISMS, self.looks)(width=self.width, parent=None)
        assert isinstance(inner, Attention)
        return inner.rows()

    def setup(self) -> None:
        at_least(1, "multi_step", steps=self.steps)
        self.w_query = Dense(self.width, use_bias=False)
        self.look = made(MECHANISMS, self.looks)(width=self.width, name="looks")

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> Any:
        """See `Attention.remember`."""
        return self.look.remember(source, valid, capacity, positions=positions)

    def extend(self, memory: Any, source: jax.Array, valid: jax.Array | None = None) -> Any:
        """See `Attention.extend`."""
        return self.look.extend(memory, source, valid)

    def read(
        self,
        query: jax.Array,
        memory: Any,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Reads the same memory `steps` times, each time with the projected query [B,Tq,d] plus the
        sum of the contexts so far, and returns a `Reading` of that sum, with the weights of the
        steps side by side as heads (if requested or recorded) and losses added up. See
        `Attention.read`; every step goes on from its own earlier looks.
        """
        query = self.w_query(query)
        total, maps = jnp.zeros_like(query), []
        losses: dict[str, jax.Array] = {}
        histories = []
        for number in range(self.steps):
            past = None if history is None else history[number]
            reading = self.look.read(query + total, memory, view, weights=weights, history=past)
            histories.append(reading.history)
            total = total + reading.context
            maps.append(reading.weights)
            losses |= {name: losses.get(name, 0.0) + loss for name, loss in reading.losses.items()}
        joint = None
        if maps[0] is not None:
            joint = self.capture(jnp.concatenate(maps, axis=1), memory, weights)
        return Reading(total, joint, losses, None if histories[0] is None else tuple(histories))

    def initial_history(self, memory: Any) -> Any:
        """See `Attention.initial_history`: of each step."""
        first = self.look.initial_history(memory)
        return None if first is None else (first,) * self.steps
