"""Delta rules are what their papers say, and some of them another's special case. What all
mixers promise is tested in `attention/test_mixer.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
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
ONE = {"heads": 1, "kernel": 1}
KEPT = {
    "delta_net": {"heads": 2},
    "gated_delta_net": {"heads": 3},
    "kda": {"heads": 2},
    "delta_product": {"heads": 2},
    "rwkv7": {"heads": 2, "rank": 3},
    "mlstm": {"heads": 2},
    "ttt_linear": {"heads": 2, "mini_batch": 3},
}


@functools.cache
def compiled(name: str, fields: str) -> Any:
    """(params, x) to y and what is kept."""
    module = make(name, json.loads(fields))
    return jax.jit(lambda params, x: module.apply({"params": params}, x, method="mix"))


def mixed(name: str, fields: dict[str, Any], params: Any, x: np.ndarray = X) -> Any:
    """y and what is kept."""
    return jax.device_get(compiled(name, json.dumps(fields))(params, x))


def by_hand(keys: Any, values: Any, rate: Any) -> Any:
    """Parameters of DeltaNet with one head and no convolution."""
    taps = np.ones((1, 3 * WIDTH), np.float32)
    found = parameters(make("delta_net", ONE))
    given = {"w_key": keys, "w_value": values, "w_rate": rate}
    kernels = {name: {"kernel": np.asarray(one, np.float32)} for name, one in given.items()}
    return {**found, **kernels, "convolution": {"kernel": taps}}


@pytest.mark.full
def test_gates_alike_for_all_channels_are_a_gate_for_the_head_and_gates_of_1_none() -> None:
    """The states: KDA = Gated DeltaNet, and Gated DeltaNet = DeltaNet."""
    heads, fields = 2, {"heads": 2, "kernel": 2}
    plain = {**fields, "key_share": 1.0, "expansion": 1}
    gated = parameters(make("gated_delta_net", plain))
    channels = WIDTH // heads
    kda = {
        **parameters(make("kda", {**fields, "rank": heads})),
        **{name: gated[name] for name in SHARED},
        "rate": gated["rate"],
        "step": np.repeat(gated["step"], channels),
        "w_low": gated["w_forget"],
        "w_forget": {"kernel": np.repeat(np.eye(heads, dtype=np.float32), channels, axis=1)},
    }
    state = mixed("gated_delta_net", plain, gated)[1].matrix
    of_channels = mixed("kda", {**fields, "rank": heads}, kda)[1].matrix
    np.testing.assert_allclose(of_channels, state, atol=2e-6)
    still = {**gated, "rate": np.full(heads, -1e4, np.float32)}
    without = {name: gated[name] for name in (*SHARED, "out")}
    without["norm"] = {"scale": np.ones(channels, np.float32)}
    kept = mixed("gated_delta_net", plain, still)[1].matrix
    np.testing.assert_allclose(kept, mixed("delta_net", fields, without)[1].matrix, atol=2e-6)
    assert np.abs(kept - state).max() > 0.01


SHARED = ("w_query", "w_key", "w_value", "w_rate", "convolution")


@pytest.mark.full
@pytest.mark.parametrize(
    ("single", "product"),
    [("delta_net", "delta_product"), ("gated_delta_net", "gated_delta_product")],
)
def test_a_product_of_one_is_the_delta_rule_itself(single: str, product: str) -> None:
    fields = {"heads": 3, "kernel": 3, "largest": 2.0}
    params = parameters(make(single, fields))
    one, other = mixed(single, fields, params), mixed(product, {**fields, "count": 1}, params)
    np.testing.assert_array_equal(one[0], other[0])


def test_a_gated_product_with_gates_of_1_is_one_without() -> None:
    """The states; with the gates as drawn they differ."""
    fields = {"heads": 2, "kernel": 2, "count": 3}
    plain = {**fields, "key_share": 1.0, "expansion": 1}
    gated = parameters(make("gated_delta_product", plain))
    still = {**gated, "rate": np.full(2, -1e4, np.float32)}
    without = {name: gated[name] for name in (*SHARED, "out")}
    without["norm"] = {"scale": np.ones(WIDTH // 2, np.float32)}
    kept, forgotten = (mixed("gated_delta_product", plain, one)[1].matrix for one in (still, gated))
    np.testing.assert_allclose(kept, mixed("delta_product", fields, without)[1].matrix, atol=2e-6)
    assert np.abs(kept - forgotten).max() > 0.01


def test_new_keys_add_and_an_old_key_is_overwritten() -> None:
    """Orthonormal keys and beta = 1: the state holds the last value of each key."""
    half = WIDTH // 2
    keys = np.diag([10.0] * half + [0.0] * half)
    values = np.concatenate([np.zeros((half, WIDTH)), np.eye(WIDTH)[:half]])
    rate = np.concatenate([np.full((half, 1), 100.0), np.zeros((half, 1))])
    said = np.random.default_rng(1).normal(size=(9, half))
    names = np.array([0, 1, 2, 3, 4, 5, 1, 3, 1])
    x = np.concatenate([np.eye(half)[names], said], axis=1)[None].astype(np.float32)
    state = mixed("delta_net", ONE, by_hand(keys, values, rate), x)[1].matrix[0, 0]
    last = said[[0, 8, 2, 7, 4, 5]]
    np.testing.assert_allclose(state[:half, :half], last / (1 + np.exp(-last)), atol=1e-5)
    assert np.abs(state[half:]).max() < 1e-6


def test_reflections_keep_the_parity_of_a_text() -> None:
    """beta = 2 at a 1, 0 at a 0: the sign of the state says whether the ones are even."""
    keys, values, rate = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, 1))
    keys[:3, 0], values[0, 0] = 10.0, 10.0
    rate[1:3, 0] = 100.0, -100.0
    bits = np.random.default_rng(2).integers(0, 2, (4, 30))
    tokens = np.concatenate([np.zeros((4, 1), int), 2 - bits], axis=1)
    x = np.eye(WIDTH, dtype=np.float32)[tokens]
    fields = {**ONE, "largest": 2.0}
    state = mixed("delta_net", fields, by_hand(keys, values, rate), x)[1].matrix[:, 0, 0, 0]
    np.testing.assert_array_equal(np.sign(state), 1 - 2 * (bits.sum(axis=1) % 2))
    np.testing.assert_allclose(np.abs(state), np.abs(state[0]), rtol=1e-4)
    assert len(set(np.sign(state))) == 2


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

    jax.tree.map(np.testing.assert_array_equal, *both(parameters(module), X))


def test_mlstm_is_stable_where_its_input_gates_are_not() -> None:
    """e^200 is no float32; in float64 the formula without the stabiliser still holds."""
    fields = {"heads": 2, "cap": 0.0}
    params = parameters(make("mlstm", fields))
    params = {**params, "bias": params["bias"] + np.array([[200.0], [0.0]], np.float32)}
    valid = np.ones(X.shape[:2], bool)
    expected = MIXER_ORACLES["mlstm"](wide(params), fields, wide(X), valid)
    found, kept = mixed("mlstm", fields, params)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert kept.recent.min() > 190


@pytest.mark.quick
def test_the_largest_exponent_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    f, i, m = -rng.random((2, 3, 8)), rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 3))
    expected, before = [], m
    for t in range(8):
        before = np.maximum(f[..., t] + before, i[..., t])
        expected.append(before)
    found, shifted = map(np.asarray, jax.jit(largest)(f, i, m))
    np.testing.assert_allclose(found, np.stack(expected, axis=-1), atol=1e-5)
    np.testing.assert_allclose(shifted[..., 1:], found[..., :-1])
    np.testing.assert_allclose(shifted[..., 0], m, rtol=1e-6)
