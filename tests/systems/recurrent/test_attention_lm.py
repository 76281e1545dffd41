"""What is said of the language models of Daniluk et al. 2017: which is which under what parameters,
and what windows hold.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.data.vocabulary import PAD
from attnlab.layers.stacked import LSTMStack
from tests.rounding import assert_close
from tests.systems.language_models import SPECS, batch, begun, make, parameters, prepared

SINGLE, KEY_VALUE, PREDICT = (
    {**SPECS[f"attention_lm{one}"], "layers": 1} for one in ("", "-key_value", "-key_value_predict")
)


def doubled(params: Any, units: list[int]) -> Any:
    """The parameters with another LSTM: unit n does what unit `units[n]` of the old one did, and so
    the outputs are h[units].
    """
    layer = params["reader"]["layer_0"]
    width = len(layer["cell"]["past"])
    share = 1 / np.bincount(units)[units]  # of the old unit's influence

    def columns(matrix: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [gate[..., units] for gate in np.split(matrix, [width, 2 * width, 3 * width], axis=-1)],
            axis=-1,
        )

    given = {
        "kernel": {"kernel": columns(layer["of_input"]["kernel"]["kernel"])},
        "bias": columns(layer["of_input"]["bias"]),
    }
    return {
        **params,
        "reader": {
            "layer_0": {
                "of_input": given,
                "cell": {"past": columns(layer["cell"]["past"])[units] * share[:, None]},
            }
        },
    }


def logits(spec: dict[str, Any], params: Any) -> np.ndarray:
    """Of the real tokens of a batch."""
    tokens = batch()
    return np.asarray(jax.jit(make(spec).apply)({"params": params}, tokens))[tokens != PAD]


@pytest.mark.full
def test_key_value_with_equal_halves_is_attention() -> None:
    params = parameters(make(SINGLE))
    merges = {name: params[name] for name in ("of_found", "of_own")}
    halves = doubled(
        {name: part for name, part in params.items() if name not in merges}, [*range(4)] * 2
    )
    halves["attention"] = {**params["attention"], **merges}
    np.testing.assert_allclose(logits(KEY_VALUE, halves), logits(SINGLE, params), atol=2e-6)


@pytest.mark.full
def test_key_value_predict_whose_prediction_is_the_value_is_key_value() -> None:
    params = parameters(make(KEY_VALUE))
    np.testing.assert_allclose(
        logits(PREDICT, doubled(params, [*range(8), *range(4, 8)])),
        logits(KEY_VALUE, params),
        atol=2e-6,
    )


def through(params: Any, merge: np.ndarray) -> np.ndarray:
    """Logits of an LSTM language model with one more layer, tanh(h merge)."""
    tokens, width = batch(), len(params["reader"]["layer_0"]["cell"]["past"])
    embedded = params["embed"]["embedding"][tokens]
    h = np.asarray(
        LSTMStack(width).apply({"params": params["reader"]}, embedded, jnp.asarray(tokens != PAD))[
            0
        ]
    )[tokens != PAD]
    return np.tanh(h @ merge) @ params["out"]["kernel"] + params["out"]["bias"]


@pytest.mark.full
@pytest.mark.parametrize(
    "spec", [SINGLE, KEY_VALUE, PREDICT], ids=["attention", "key_value", "key_value_predict"]
)
def test_without_what_is_found_it_is_an_lstm_and_a_layer(spec: dict[str, Any]) -> None:
    params = parameters(make(spec))
    where = params if spec is SINGLE else params["attention"]
    where["of_found"] = jax.tree.map(np.zeros_like, where["of_found"])
    own = where["of_own"]["kernel"]
    # the last part predicts
    merge = np.concatenate([np.zeros((spec["state"] - len(own), own.shape[1]), np.float32), own])
    assert_close(logits(spec, params), through(params, merge), eps=8)


@pytest.mark.full
def test_an_n_gram_rnn_of_two_words_or_without_late_parts_is_an_lstm_and_a_layer() -> None:
    for name in ("ngram_rnn-2", "ngram_rnn"):
        params = parameters(make(SPECS[name]))
        params["merge"]["kernel"][3:] = 0.0
        assert_close(logits(SPECS[name], params), through(params, params["merge"]["kernel"]), eps=8)


def test_a_window_of_one_has_all_its_weight_on_the_step_before() -> None:
    call, system = prepared({**SINGLE, "window": 1})
    (one,) = system.maps(call(batch()[:1], mutable=[MAPS])[1][MAPS]).values()
    np.testing.assert_allclose(one.weights[0, 0], np.eye(6, k=-1), atol=1e-7)


@pytest.mark.full
def test_a_window_longer_than_the_text_sees_what_there_is() -> None:
    params = parameters(make(SINGLE))
    np.testing.assert_allclose(
        logits({**SINGLE, "window": 50}, params), logits({**SINGLE, "window": 5}, params), atol=2e-6
    )
    one, other = (logits({**SINGLE, "window": width}, params) for width in (4, 5))
    assert np.abs(one - other).max() > 1e-4


def test_the_windows_beginning_is_no_state_of_the_text_before() -> None:
    """A row that begins anew gets the first state; then what another text left in the window is not
    looked at.
    """
    call, _ = prepared(SINGLE)
    tokens = batch()
    _, state = call(begun(SINGLE), tokens, method="read")
    begins = jnp.asarray([True, False, False, False])
    fresh = jax.tree.map(
        lambda new, old: jnp.where(begins.reshape(4, *[1] * (old.ndim - 1)), new, old),
        begun(SINGLE),
        state,
    )
    found, _ = call(fresh, tokens, method="read")
    np.testing.assert_allclose(found[0], call(tokens)[0], atol=2e-6)
    assert np.abs(found[1] - call(tokens)[1])[:3].max() > 1e-3


def test_carrying_the_state_alone_cuts_windows_where_pieces_begin() -> None:
    spec = {**SINGLE, "carry": "state"}
    params, tokens = parameters(make(spec)), batch()[:1]
    carried, cut = (
        jax.jit(functools.partial(make(one).apply, {"params": params}, method="read"))
        for one in (SINGLE, spec)
    )
    start = begun(spec, 1)
    np.testing.assert_allclose(cut(start, tokens)[0], carried(start, tokens)[0], atol=2e-6)
    state = cut(start, tokens[:, :3])[1]
    found, whole = cut(state, tokens[:, 3:])[0], carried(start, tokens)[0][:, 3:]
    # both words whose window would have reached back
    assert np.abs(found - whole)[:, :2].max(axis=2).min() > 1e-4
    np.testing.assert_allclose(found[:, 2:], whole[:, 2:], atol=2e-6)
    step = jax.jit(functools.partial(make(spec).apply, {"params": params}, method="step"))
    # writing goes on with the window
    np.testing.assert_allclose(step(state, tokens[:, 3])[0], whole[:, 0], atol=2e-6)
