"""Decoding that reads the whole text again for every token writes what steps with a cache write, and
needs no cache.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.config.registry import build
from attnlab.data.vocabulary import BOS, PAD
from attnlab.decoding.settings import Decoding
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import LanguageModel, Seq2Seq
from attnlab.tasks.decoders import check_room, continuing, translating
from attnlab.tasks.models import system_factory
from tests.refusals import check_refused
from tests.systems.checks import SPECS
from tests.tasks.test_decoders import HEADS, MIXERS, away

HOW: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "sample": {"method": "sample", "n_best": 2, "seed": 3, "top_k": 6},
    "beam": {"method": "beam", "beam": 3, "n_best": 2, "no_repeat_ngram": 2},
}
SIZES = {"dropout": 0.0, "width": 12, "layers": 1, "hidden": 16}
DECODER = {"name": "decoder", "attention": HEADS, "positions": {"name": "none"}, **SIZES}
SYSTEM_OF: dict[str, dict[str, Any]] = {
    name: {**DECODER, "layers": 2 if "all" in name else 1, **one} for name, one in MIXERS.items()
}
SYSTEM_OF["learned"] = {**DECODER, "positions": {"name": "learned", "length": 12}}
SYSTEM_OF["no hidden states"] = {"name": "lstm_lm", "embedding": 5, "width": 6, "dropout": 0.0}
PROMPTS = ([BOS], [BOS, 5, 6], [BOS, 4, 5, 6, 7, 8, 3, 4])
SOURCE = np.array([[*one, *[PAD] * (8 - len(one))] for one in PROMPTS], np.int32)


class Cacheless(MultiHead):
    """Reads whole texts alone."""

    capabilities = dataclasses.replace(MultiHead.capabilities, cache=False)

    def begin(self, *arguments: Any, **named: Any) -> Any:
        raise AssertionError("a state is asked of what keeps none")

    extend_pairs = begin


def decoded(make: Any, params: Any, source: Any, how: dict[str, Any], full: bool) -> Any:
    """Hypotheses of three texts."""
    settings = Decoding(max_ratio=0.0, max_extra=4, full_passes=full, **how)
    return make(settings)(params, [(np.arange(3), {"source": source})])


def check_same(actual: Any, expected: Any) -> None:
    """The same tokens, with the same probabilities and weights up to rounding."""
    every = (itertools.chain.from_iterable(one) for one in (actual, expected))
    for one, other in zip(*every, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        np.testing.assert_allclose(one.log_prob, other.log_prob, atol=1e-5)
        assert (one.alignment is None) == (other.alignment is None)
        if other.alignment is not None:
            np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-5)


DRAWN = [("cache", "beam"), ("no hidden states", "greedy")]
CASES = [*itertools.product(("cache", "no hidden states"), HOW)]
CASES += [(name, "greedy") for name in SYSTEM_OF if name not in ("cache", "no hidden states")]


def cases(every: list[tuple[str, str]], drawn: list[tuple[str, str]]) -> list[Any]:
    """Those that are not drawn run in the full mode alone."""
    full = pytest.mark.full
    return [pytest.param(*case, marks=() if case in drawn else full) for case in every]


@pytest.mark.parametrize(("name", "how"), cases(CASES, DRAWN))
def test_a_text_goes_on_as_over_a_cache(name: str, how: str) -> None:
    """Beginnings of several lengths, in one program; every method for a decoder and for a system
    without hidden states.
    """
    system: Any = build(SYSTEMS, ConfigDict(SYSTEM_OF[name]), "system")(vocabulary=9)
    params, make = away(system, jnp.ones((1, 2), jnp.int32)), functools.partial(continuing, system)
    stepped, again = (decoded(make, params, SOURCE, HOW[how], full) for full in (False, True))
    check_same(again, stepped)


@pytest.mark.parametrize(
    ("name", "how"),
    cases([*itertools.product(("transformer", "rnnsearch"), HOW)], [("transformer", "greedy")]),
)
def test_a_target_is_written_as_in_steps(name: str, how: str) -> None:
    node = {**SPECS[name], "dropout": 0.0, **({"layers": 1} if name == "transformer" else {})}
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    system: Any = build(SYSTEMS, ConfigDict(node), "system")(**sizes)
    params = away(system, *[jnp.ones((1, 2), jnp.int32)] * 2)
    make = functools.partial(translating, system, alignment=True)
    settings = {**HOW[how], **({"coverage": 0.2} if how == "beam" else {})}
    stepped, again = (decoded(make, params, SOURCE, settings, full) for full in (False, True))
    check_same(again, stepped)
    assert again[0][0].alignment.shape == (len(again[0][0].tokens), 1)


def test_without_a_cache_it_writes_only_if_told_to() -> None:
    """What the same attention with a cache writes, from the same parameters."""
    own = {**HEADS, "name": f"{__name__}:Cacheless"}
    config = ConfigDict({"system": {**DECODER, "attention": own}, "decoding": Decoding().to_dict()})
    words = r"Cacheless .*or set decoding\.full_passes=true"
    check_refused(words, system_factory, config, LanguageModel)
    config.decoding = {"full_passes": True}
    system: Any = system_factory(config, LanguageModel)(vocabulary=9)
    caching: Any = build(SYSTEMS, ConfigDict(DECODER), "system")(vocabulary=9)
    params = away(system, jnp.ones((1, 2), jnp.int32))
    actual = decoded(functools.partial(continuing, system), params, SOURCE, HOW["greedy"], True)
    make = functools.partial(continuing, caching)
    check_same(actual, decoded(make, params, SOURCE, HOW["greedy"], False))


@pytest.mark.parametrize(
    ("base", "system", "words"),
    [
        (LanguageModel, {**DECODER, "attention": {"name": "linformer"}}, "the direction 'causal'"),
        (
            Seq2Seq,
            {**SPECS["transformer"], "leaking": True},
            "in a full pass system.decoder_attention=multihead sees later tokens",
        ),
        (
            LanguageModel,
            {"name": "lstmn_lm", "attention": {"name": f"{__name__}:Cacheless"}},
            "cached decoding; choose a mechanism with cache=True$",
        ),
    ],
)
def test_what_no_full_pass_can_write_is_refused(base: Any, system: Any, words: str) -> None:
    """What sees later tokens; what grows a memory in training too."""
    config = ConfigDict({"system": system, "decoding": {"full_passes": True}})
    check_refused(words, system_factory, config, base)


def test_positions_must_reach_as_far_as_it_may_write() -> None:
    node = {**SPECS["transformer"], "positions": {"name": "learned", "length": 6}}
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    system: Any = build(SYSTEMS, ConfigDict(node), "system")(**sizes)
    how = {"full_passes": True, "max_ratio": 0.0, "max_extra": 7}
    config = ConfigDict({"decoding": how, "batch": {"max_length": 5}})
    check_refused("rows of 7 tokens, .* end at 6; .*decoding.max_extra", check_room, system, config)
