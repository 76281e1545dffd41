"""Language models beyond what their oracles hold: maps, what cannot write, and what windows keep; of
those of Daniluk et al. 2017 what their windows hold.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks.models import system_factory
from attnlab.training.updates import first_params
from tests.systems.language_models import SPECS, batch, begun, make, parameters, prepared

SINGLE = {**SPECS["attention_lm"], "layers": 1}


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
    assert weights.shape == (6, 6) and (one.rows, one.columns) == ("source", "source")
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


def test_layers_with_a_window_keep_what_the_window_holds() -> None:
    """Whatever is decoded; the others keep the text."""
    node = {**SPECS["decoder"], "layers": 3, "positions": {"name": "none"}}
    near = {"name": "window", "width": 5}
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
    actual, _ = call(fresh, tokens, method="read")
    np.testing.assert_allclose(actual[0], call(tokens)[0], atol=2e-6)
    assert np.abs(actual[1] - call(tokens)[1])[:3].max() > 1e-3


def test_writing_goes_on_with_the_window_that_reading_cuts() -> None:
    """With the state alone, pieces of a text begin without a window; the steps after them do not."""
    cut, tokens = {**SINGLE, "carry": "state"}, batch()[:1]
    call, _ = prepared(cut)
    _, state = call(begun(cut, 1), tokens[:, :3], method="read")
    whole = prepared(SINGLE)[0](tokens)[:, 3:]
    np.testing.assert_allclose(call(state, tokens[:, 3], method="step")[0], whole[:, 0], atol=2e-6)
    actual = call(state, tokens[:, 3:], method="read")[0]
    # both words whose window would have reached back
    assert np.abs(actual - whole)[:, :2].max(axis=2).min() > 1e-4
    np.testing.assert_allclose(actual[:, 2:], whole[:, 2:], atol=2e-6)
