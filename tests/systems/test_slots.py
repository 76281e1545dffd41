"""A system that asks its slots for what it does not declare is caught, and so is one whose states
decoding cannot carry; that every registered one does neither is in `test_systems.py`. Decoders carry what
looks leave to the next look: feeding word by word gives the full pass, with one part that looks back for each
way that a decoder takes, and with heads over the tape of shallow fusion. That each slot is handed what it
declares is in `slots.py`, what the parts make of it in `tests/attention/test_weights_and_history.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from attnlab.attention.needs import Need
from attnlab.attention.view import CAUSAL
from attnlab.systems.recurrent.lstm_lm import LSTMLanguageModel
from attnlab.systems.recurrent.luong import Luong
from attnlab.systems.transformers.transformer import Transformer
from tests.systems import checks, language_models
from tests.systems.own import check_slots
from tests.systems.tiny import seldom


class Stepping(Luong):
    """Does not say that it asks word by word."""

    needs = {"attention": Need(role="cross")}


class Undeclared(Luong):
    """Has a slot that it does not declare."""

    needs = {}


class Caching(Transformer):
    """Does not say that a memory of the decoder grows."""

    @classmethod
    def asks(cls, chosen: Any) -> Any:
        return {
            **super().asks(chosen),
            "decoder_attention": Need(role="self", direction="causal", stepwise=True),
        }


class Causal(Luong):
    """Hides the later part of the source."""

    def _attentional(self, tops: Any, attended: Any, fed: Any, looks: Any) -> Any:
        reading = self.search.read(tops, attended, CAUSAL, history=looks)
        both = jnp.concatenate([reading.context, tops], axis=-1)
        return jnp.tanh(self.combine(both)), reading.history


class Weighing(Luong):
    """Does not say that it uses weights."""

    def _attentional(self, tops: Any, attended: Any, fed: Any, looks: Any) -> Any:
        reading = self.search.read(tops, attended, weights=True, history=looks)
        result = jnp.tanh(self.combine(jnp.concatenate([reading.context, tops], axis=-1)))
        return result * reading.weights.sum(), reading.history


class Forgetting(Luong):
    """Says that it carries what looks leave, and does not."""

    def _attentional(self, tops: Any, attended: Any, fed: Any, looks: Any) -> Any:
        return super()._attentional(tops, attended, fed, None)[0], looks


class Turned(LSTMLanguageModel):
    """A state whose rows come second."""

    def start(self, rows: int, room: int) -> Any:
        return {"known": super().start(rows, room), "turned": jnp.zeros((2, rows))}

    def read(self, state: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        logits, known = super().read(state["known"], tokens)
        return logits, {**state, "known": known}


LUONG, LM = checks.SPECS["luong"], language_models.SPECS["lstm_lm"]
LIARS = [
    (Stepping, LUONG, "stepwise=False, but queries come one by one"),
    (Undeclared, LUONG, r"slots \['attention'\], but needs of \[\]"),
    (
        Caching,
        checks.SPECS["transformer"],
        "'decoder_attention'. has cache=False, but its memory is extended",
    ),
    (Causal, LUONG, "direction='bidirectional', but it is given a causal view"),
    (Forgetting, LUONG, "history=True, but a look of decoding is not told"),
    (Weighing, LUONG, "weights=False, but it is asked for weights"),
    (Turned, LM, r"expected \[B=3,...\]"),
]


@pytest.mark.parametrize(("liar", "spec", "words"), LIARS, ids=[one[0].__name__ for one in LIARS])
def test_who_declares_less_is_caught(liar: Any, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_slots({**spec, "name": f"{__name__}:{liar.__name__}"})


MONOTONIC = {"score": {"name": "additive", "hidden": 5}, "alignment": "monotonic"}
TEMPORAL = {"score": {"name": "additive", "hidden": 5}, "alignment": "temporal"}
COVERAGE = {"score": {"name": "coverage", "hidden": 5}}
HEADS = {"name": "multihead", "heads": 2, **TEMPORAL}


def single(part: dict[str, Any]) -> dict[str, Any]:
    return {"name": "single", **part}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a look before the cell": ("gnmt", {"attention": single(MONOTONIC)}),
    "beside a coverage of its own": ("pointer_generator", {"attention": single(TEMPORAL)}),
    "after all states": ("luong", {"feeding": "none", "attention": single(COVERAGE)}),
    "in every layer": ("transformer", {"cross_attention": HEADS}),
    "in the cell": ("lstmn_seq2seq", {"fusion": "deep", "inter_attention": single(COVERAGE)}),
    "in convolutions": ("convs2s", {"attention": single(COVERAGE)}),
    "behind both sequences": (
        "lstmn_seq2seq",
        {"fusion": "shallow", "inter_attention": {"name": "multihead", "heads": 5}},
    ),
}
DEFAULT = ("a look before the cell", "beside a coverage of its own")


@pytest.mark.parametrize("way", seldom(CASES, *DEFAULT))
def test_word_by_word_equals_the_full_pass(way: str) -> None:
    name, fields = CASES[way]
    checks.check_cached_decoding({**checks.SPECS[name], **fields})
