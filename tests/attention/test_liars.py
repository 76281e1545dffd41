"""Mechanisms that break a promise which they declare to keep: the suite that every mechanism goes
through must catch each of them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import Reading
from attnlab.attention.view import EVERYTHING, View
from tests.attention import test_conformance as suite
from tests.attention import test_memories as memories
from tests.attention.oracles import ORACLES


class SeesTheFuture(MultiHead):
    """Accepts a causal look, and looks at everything."""

    def read(self, query: Any, memory: Any, view: Any = EVERYTHING) -> Reading:
        return super().read(query, memory, View(positions=view.positions))


class SeesTheFutureALittle(MultiHead):
    """A mean over the whole source beside the look, as a norm over time would bring it in."""

    def read(self, query: Any, memory: Any, view: Any = EVERYTHING) -> Reading:
        reading = super().read(query, memory, view)
        return reading.replace(
            context=reading.context + 1e-4 * memory.values.sum(axis=(1, 2, 3))[:, None, None]
        )


class SeesPadding(MultiHead):
    """Takes `valid` and forgets it."""

    def remember(self, source: Any, valid: Any = None, capacity: Any = None) -> Any:
        return super().remember(source, None, capacity)


class LosesPositions(MultiHead):
    """Has a position scheme, which it tells that everything stands in one place."""

    def look(self, query: Any, memory: Any, view: Any, history: Any = None) -> Any:
        look = super().look(query, memory, view, history)
        return look.replace(score=lambda q, k, i, j: look.score(q, k, 0 * i, 0 * j))


class StopsWeights(MultiHead):
    """Hands out weights that nothing can be learnt through."""

    def capture(self, weights: Any, memory: Any = None, asked: bool = False) -> Any:
        given = super().capture(weights, memory, asked)
        return None if given is None else jax.lax.stop_gradient(given)


class ReadsSpareRoom(MultiHead):
    """Takes slots that nothing was written to for tokens."""

    def read(self, query: Any, memory: Any, view: Any = EVERYTHING) -> Reading:
        return super().read(
            query,
            memory.replace(valid=jnp.ones_like(memory.valid)),
            View(positions=memory.length - query.shape[1]),
        )


class ForgetsTheScale(MultiHead):
    """Scores of other queries than the formula's."""

    def split(self, x: Any) -> Any:
        return 1.001 * super().split(x)


class TurnsGradients(MultiHead):
    """The right value with another gradient."""

    def join(self, context: Any, query: Any) -> Any:
        joined = super().join(context, query)
        return 1.001 * joined - jax.lax.stop_gradient(0.001 * joined)


LIES: list[tuple[type[MultiHead], Callable[..., None], dict[str, Any]]] = [
    (SeesTheFuture, suite.test_causal_sees_no_future, {}),
    (SeesTheFutureALittle, suite.test_causal_sees_no_future, {}),
    (SeesPadding, suite.test_padding_is_inert, {}),
    (
        LosesPositions,
        suite.test_order_matters_exactly_where_positions_are_looked_at,
        {"positions": "alibi"},
    ),
    (ReadsSpareRoom, memories.test_cached_decoding_and_prefill_equal_the_full_pass, {}),
    (StopsWeights, suite.test_values_and_gradients_equal_the_oracle, {}),
    (ForgetsTheScale, suite.test_values_and_gradients_equal_the_oracle, {}),
    (TurnsGradients, suite.test_values_and_gradients_equal_the_oracle, {}),
]


DRAWN = (SeesTheFuture, SeesPadding, ReadsSpareRoom, ForgetsTheScale, TurnsGradients)


@pytest.mark.parametrize(
    ("liar", "test", "fields"),
    [
        pytest.param(*lie, id=lie[0].__name__, marks=[] if lie[0] in DRAWN else [pytest.mark.full])
        for lie in LIES
    ],
)
def test_a_liar_is_caught(
    liar: type, test: Callable[..., None], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its dotted path, as a mechanism of one's own is named; with the oracle of what it says
    it is.
    """
    path = f"{__name__}:{liar.__name__}"
    monkeypatch.setitem(ORACLES, path, ORACLES["multihead"])
    more = {"view": "causal"} if test is suite.test_values_and_gradients_equal_the_oracle else {}
    with pytest.raises(AssertionError):
        test(path, {"heads": 3, **fields}, **more)
