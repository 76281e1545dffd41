"""All language models, with several mechanisms in their slots: the promises of
`language_models.py`, their oracles, learning, maps.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import MAPS
from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.layers.lstm import LSTMLayer
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import LanguageModel
from attnlab.systems.recurrent import attention_lm, lstmn
from attnlab.tasks.models import system_factory
from attnlab.training.drawing import first_params
from tests.systems.checks import check_equal, check_every_parameter_is_read
from tests.systems.language_models import (
    CHECKS,
    SPECS,
    VOCABULARY,
    batch,
    begun,
    check_dropout,
    check_learning,
    compared,
    forget,
    make,
    parameters,
    prepared,
)
from tests.systems.oracles import ORACLES

TOLD = (
    "lstm_lm-shared",
    "attention_lm-key_value",
    "ngram_rnn-2",
    "lstmn_lm-word",
    *(f"decoder-{norm}" for norm in ("post", "rezero", "res_post")),
)  # by their oracles alone: the others are like them
CHECKED = {name: spec for name, spec in SPECS.items() if name not in TOLD}
every = pytest.mark.parametrize("spec", CHECKED.values(), ids=CHECKED.keys())
CASES = {
    **{
        name: spec
        for name, spec in SPECS.items()
        if "multihead" not in name and name not in ("decoder-recurrent", "decoder-hybrid")
    },
    "attention_lm-pieces": {
        **SPECS["attention_lm-key_value"],
        "carry": "state",
        "piece": 2,
        "window": 3,
    },
    "lstmn_lm-wide": {**SPECS["lstmn_lm"], "span": 9},
    "lstmn_lm-none": {**SPECS["lstmn_lm"], "origin": "none", "layers": 1},
    "lstmn_lm-word-zeros": {**SPECS["lstmn_lm"], "question": "word", "layers": 1},
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
@every
def test_promise(spec: dict[str, Any], check: Any) -> None:
    check(spec)


@functools.cache
def found_and_expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of the oracle where tokens are real, for texts of 6, 3, 1 and 0
    tokens; `piece` of them are read at once.
    """
    spec = dict(CASES[case])
    piece = spec.pop("piece", 6)
    return compared(spec, ORACLES[spec["name"]], CASES[case], piece)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, marks=[pytest.mark.quick] if one in SYSTEMS.names() else [])
        for one in CASES
    ],
)
def test_logits_equal_the_papers(case: str) -> None:
    check_equal(*found_and_expected(case))


def test_every_language_model_has_an_oracle_and_settings_change_it() -> None:
    named = {name for name in SYSTEMS.names() if issubclass(SYSTEMS.resolve(name), LanguageModel)}
    assert (
        named
        == {spec["name"] for spec in CASES.values()}
        == {spec["name"] for spec in SPECS.values()}
    )
    for one, other in itertools.combinations([found_and_expected(case)[1] for case in CASES], 2):
        assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(
    "case", ["lstm_lm", "attention_lm", "attention_lm-key_value", "ngram_rnn", "lstmn_lm"]
)
def test_the_oracle_reads_every_parameter(case: str) -> None:
    spec, tokens = CASES[case], batch()
    oracle = functools.partial(ORACLES[spec["name"]], settings=spec, tokens=tokens)
    check_every_parameter_is_read(oracle, parameters(make(spec)), by=0.1)


@pytest.mark.parametrize("name", ["attention_lm", "lstmn_lm"])
def test_maps_are_of_the_words_that_were_read(name: str) -> None:
    """[T,T], strictly below the diagonal; what goes to the slot before the text is missing from a
    row, and nothing else.
    """
    spec = {**SPECS[name], "layers": 1}
    call, system = prepared(spec)
    tokens, start = np.tile(batch()[:1], (4, 1)), begun(spec)
    reach = spec.get("window", spec.get("span"))
    (logits, _), collected = call(start, tokens, method="read", mutable=[MAPS])
    np.testing.assert_allclose(logits, call(tokens), atol=1e-6)
    (one,) = system.maps(collected[MAPS]).values()
    weights = np.asarray(one.weights)[0, 0]
    assert weights.shape == (6, 6) and (one.query, one.key) == ("source", "source")
    i, j = np.indices((6, 6))
    np.testing.assert_array_equal(weights > 0, (j < i) & (i - j <= reach))
    sums = weights.sum(axis=1)
    if name == "attention_lm":
        np.testing.assert_allclose(sums, [0, 1, 1, 1, 1, 1], atol=1e-6)
    else:  # the slot of zeros can be seen all along
        assert sums[0] == 0.0 and ((sums[1:] > 0.1) & (sums[1:] < 0.99)).all()
    (_, state), _ = call(start, tokens[:, :3], method="read", mutable=[MAPS])
    _, collected = call(state, tokens[:, 3:], method="read", mutable=[MAPS])
    (later,) = system.maps(collected[MAPS]).values()
    np.testing.assert_allclose(later.weights[0, 0], weights[3:, 3:], atol=1e-6)


@pytest.mark.parametrize("name", ["attention_lm", "ngram_rnn", "lstmn_lm"])
def test_eight_texts_can_be_learnt_by_heart(name: str) -> None:
    sizes = {
        "embedding": 24,
        "layers": 1,
        **({"state": 24, "width": 24} if name == "attention_lm" else {"width": 24}),
    }
    check_learning({**SPECS[name], **sizes})


def test_dropout_acts_only_with_its_stream() -> None:
    for name in ("attention_lm", "lstmn_lm"):
        check_dropout({**SPECS[name], "layers": 1})


def test_published_starts() -> None:
    """Uniform weights where a config asks for them, a bound of their own; the embedding is the
    output where they are shared.
    """
    for name in ("lstm_lm-shared", "ngram_rnn"):
        params = first_params(
            make({**SPECS[name], "uniform": 0.05}).init, jax.random.key(0), batch()
        )["params"]
        assert not params["out"].pop("bias").any()
        forget_gate = params["reader"]["layer_0"]["of_input"].pop("bias")
        width = len(forget_gate) // 4
        assert (np.abs(forget_gate[width : 2 * width] - 1) <= 0.05).all()
        for leaf in jax.tree.leaves(params):
            assert 0.01 < np.abs(leaf).max() <= 0.05
    assert "kernel" not in parameters(make(SPECS["lstm_lm-shared"]))["out"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (
            "lstm_lm",
            {"share": "output"},
            "share='output' needs as wide an embedding as a layer, not embedding=5 and width=4",
        ),
        ("attention_lm", {"window": 0}, "width=0 is too small; the least is 1"),
        (
            "attention_lm",
            {"attention": {"name": "key_value"}, "state": 7, "merge": "none"},
            "7 wide, which cannot be cut.*6 or 8 can",
        ),
        (
            "attention_lm",
            {"attention": {"name": "key_value"}, "state": 8},
            "merge='tanh': KeyValue merges .* itself; set system.merge='none'",
        ),
        (
            "attention_lm",
            {"merge": "none"},
            "merge='none': Single only says what it found, .*set it to 'tanh'",
        ),
        ("ngram_rnn", {"order": 1}, "order=1, must be at least 2"),
        ("lstmn_lm", {"span": 0}, "span=0, must be at least 1"),
        ("lstmn_lm", {"question": "words"}, "question='words'.*did you mean 'word'"),
    ],
)
def test_what_cannot_be_is_named(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        factory: Any = build(SYSTEMS, ConfigDict({**SPECS[name], **change}), "system")
        factory.func.asks(factory.keywords)
        jax.eval_shape(
            factory(vocabulary=VOCABULARY).init, jax.random.key(0), jnp.ones((1, 2), jnp.int32)
        )
    assert "\n" not in str(caught.value)


def test_only_mechanisms_that_can_are_let_in() -> None:
    for name, attention, words in (
        ("lstmn_lm", {"name": "key_value"}, "KeyValue does not support values apart from keys"),
        (
            "attention_lm",
            {"name": "single", "alignment": {"name": "local_p"}},
            "looks at the length of the source",
        ),
        (
            "attention_lm",
            {"name": "single", "score": {"name": "location"}},
            "attention.score: Location depends on positions",
        ),
        (
            "lstmn_lm",
            {"name": "single", "score": {"name": "soft_capped", "score": {"name": "location"}}},
            "SoftCapped depends on positions",
        ),
    ):
        factory: Any = build(SYSTEMS, ConfigDict({**SPECS[name], "attention": attention}), "system")
        mechanism = factory.keywords["attention"]
        with pytest.raises(UserError, match=words):
            factory.func.asks(factory.keywords)["attention"].check(
                mechanism.func, "system.attention", mechanism.keywords
            )


def test_what_a_decoder_cannot_be_is_told() -> None:
    spec = SPECS["decoder"]
    for change, message in (
        ({"positions": {"name": "rope"}}, "positions=Rope acts inside attention"),
        ({"logit_cap": -1.0}, "a cap is at least 0"),
        ({"position_width": 8}, "position_width=8: positions and words share a width of 8"),
        ({"position_width": 2, "positions": {"name": "none"}}, "but system.positions=none"),
    ):
        with pytest.raises(UserError, match=message):
            parameters(make({**spec, **change}))
    system = make(spec)
    with pytest.raises(
        UserError, match="10 tokens are to be read and written, but positions end at 9"
    ):
        system.apply({"params": parameters(system)}, 1, 10, method="start")


class Cacheless(MultiHead):
    """Cannot grow its memory."""

    capabilities = dataclasses.replace(MultiHead.capabilities, cache=False)


class BothWays(MultiHead):
    """Sees later keys, whatever the view says."""

    capabilities = dataclasses.replace(
        MultiHead.capabilities, directions=frozenset({"bidirectional"})
    )


def test_what_cannot_write_is_told_before_anything_is_read() -> None:
    here = f"{__name__}:"
    for change, message in (
        ({"name": "encoder"}, "system=encoder: .*decoder, .*; it reads whole texts, both ways"),
        ({"name": "bilstm_tagger"}, "system=bilstm_tagger: .*and writes none"),
        (
            {**SPECS["decoder"], "attention": {"name": f"{here}Cacheless"}},
            "Cacheless does not support cached decoding; choose a mechanism with cache=True",
        ),
        (
            {**SPECS["decoder"], "attention": {"name": f"{here}BothWays"}},
            "BothWays does not support the direction 'causal'",
        ),
    ):
        with pytest.raises(UserError, match=message) as caught:
            system_factory(ConfigDict({"system": change}), LanguageModel)
        assert "\n" not in str(caught.value)


def test_a_window_asks_a_decoders_mechanism_for_it() -> None:
    recurrent, near = SPECS["decoder-recurrent"], {"name": "window", "width": 2}
    some = {"name": "by_layer", "one": {"name": "full"}, "other": near}
    heads = {"name": "multihead", "heads": 2}
    both = {"name": "by_layer", "one": recurrent["attention"], "other": heads}
    for change, where in (
        ({"visibility": near}, r"system.attention=recurrent: .* visibility of its own"),
        ({"visibility": some}, r"system.attention=recurrent: .* visibility of its own"),
        ({"visibility": {**some, "pattern": ("other",)}, "attention": both}, "attention.one=recur"),
        ({"visibility": {**some, "pattern": ()}}, "by_layer: pattern=.*one layer"),
        ({"visibility": {"name": "any_of", "one": some, "other": near}}, "stands for the parts"),
    ):
        config = ConfigDict({"system": {**recurrent, **change}})
        with pytest.raises(UserError, match=where):
            system_factory(config, LanguageModel)
    system_factory(
        ConfigDict({"system": {**recurrent, "visibility": some, "attention": both}}), LanguageModel
    )


def test_layers_with_a_window_keep_what_the_window_holds() -> None:
    """Whatever is decoded; the others keep the text."""
    node = {
        **SPECS["decoder-recurrent"],
        "layers": 3,
        "attention": {"name": "multihead", "heads": 2},
    }
    near = {"name": "window", "width": 5}
    node |= {"positions": {"name": "none"}}
    node["visibility"] = {"name": "by_layer", "one": near, "other": {"name": "full"}}
    system: Any = system_factory(ConfigDict({"system": node}), LanguageModel)(vocabulary=9)
    params = jax.eval_shape(system.init, jax.random.key(0), np.ones((1, 2), np.int32))

    def bytes_of(room: int) -> list[int]:
        state = jax.eval_shape(lambda p: system.apply(p, 2, room, method="start"), params)
        of = [jax.tree.leaves(layer) for layer in state.layers]
        return [sum(one.size * one.dtype.itemsize for one in layer) for layer in of]

    short, long = bytes_of(100), bytes_of(1000)
    assert short[0] == short[2] == long[0] == long[2] < short[1]
    assert 9 * short[1] < long[1] <= 10 * short[1]


def _forget_the_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        attention_lm, "latest", lambda slots, counts, kept: jnp.zeros_like(slots[:, :kept])
    )


def _keep_padding(patch: pytest.MonkeyPatch) -> None:
    def latest(slots: jax.Array, counts: jax.Array, kept: int) -> jax.Array:
        return slots[:, slots.shape[1] - kept :]

    for module in (attention_lm, lstmn):
        patch.setattr(module, "latest", latest)


def _see_oneself(patch: pytest.MonkeyPatch) -> None:
    plain = LSTMLayer.__call__

    def later(self: Any, *arguments: Any, **named: Any) -> Any:
        outputs, last = plain(self, *arguments, **named)
        return jnp.roll(outputs, -1, axis=1), last

    patch.setattr(LSTMLayer, "__call__", later)


FAULTS = [
    (_forget_the_window, "attention_lm", "pieces"),
    (_keep_padding, "attention_lm", "padding"),
    (_keep_padding, "lstmn_lm", "padding"),
    (_see_oneself, "lstm_lm", "causality"),
]


@pytest.mark.parametrize(("fault", "name", "check"), FAULTS)
def test_broken_code_breaks_a_promise(
    fault: Any, name: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget()
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[check]({**SPECS[name], "layers": 1})
    forget()
