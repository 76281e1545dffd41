"""Padding leaves a state as it is, and mLSTM is stable. What all mixers promise is tested in
`attention/test_mixer.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.view import CAUSAL
from attnlab.mixers.mlstm import largest
from tests.attention.cases import WIDTH, make, parameters, wide
from tests.mixers.oracles import MIXER_ORACLES

X = np.random.default_rng(0).normal(size=(2, 7, WIDTH)).astype(np.float32)
KEPT = {
    "delta_net": {"heads": 2},
    "gated_delta_net": {"heads": 3},
    "kda": {"heads": 2},
    "delta_product": {"heads": 2},
    "rwkv7": {"heads": 2, "rank": 3},
    "mlstm": {"heads": 2},
    "ttt_linear": {"heads": 2, "mini_batch": 3},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("kda", "rwkv7", "mlstm") else pytest.mark.full)
        for name in KEPT
    ],
)
def test_padding_leaves_what_is_kept_as_it_is_to_the_last_bit(name: str) -> None:
    module = make(name, KEPT[name])

    @jax.jit
    def both(params: Any, x: Any) -> Any:
        _, kept = module.apply({"params": params}, x, method="mix")
        none = dataclasses.replace(CAUSAL, valid=jnp.zeros(x.shape[:2], bool))
        return kept, module.apply({"params": params}, 10.0 * x, none, kept, method="mix")[1]

    kept, after = both(parameters(module), X)
    for before, actual in zip(*map(jax.tree.leaves, (kept, after)), strict=True):
        np.testing.assert_array_equal(actual, before)


def test_mlstm_is_stable_where_its_input_gates_are_not() -> None:
    """e^200 is no float32; in float64 the formula without the stabiliser still holds."""
    fields = {"heads": 2, "cap": 0.0}
    module, params = make("mlstm", fields), parameters(make("mlstm", fields))
    params = {**params, "bias": params["bias"] + np.array([[200.0], [0.0]], np.float32)}
    valid = np.ones(X.shape[:2], bool)
    expected = MIXER_ORACLES["mlstm"](wide(params), fields, wide(X), valid)
    mix = jax.jit(lambda params: module.apply({"params": params}, X, method="mix"))
    actual, kept = jax.device_get(mix(params))
    np.testing.assert_allclose(actual, expected, atol=2e-4)
    assert kept.recent.min() > 190


@pytest.mark.quick
def test_the_largest_exponent_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    f, i, m = -rng.random((2, 3, 8)), rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 3))
    expected, before = [], m
    for t in range(8):
        before = np.maximum(f[..., t] + before, i[..., t])
        expected.append(before)
    actual, shifted = map(np.asarray, jax.jit(largest)(f, i, m))
    np.testing.assert_allclose(actual, np.stack(expected, axis=-1), atol=1e-5)
    np.testing.assert_allclose(shifted[..., 1:], actual[..., :-1])
    np.testing.assert_allclose(shifted[..., 0], m, rtol=1e-6)
