"""Mixers with a state refuse what does not fit, start as is said, and leave their state as it is at
padding; mLSTM is stable, and TTT learns mini-batches that begin with the text. What all promise is tested
in `attention/test_mixer.py` and `test_whole.py`, the learning itself in `layers/recurrence/test_descent.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.view import CAUSAL
from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from attnlab.mixers.decaying import decays
from attnlab.mixers.mlstm import largest
from tests.attention.cases import WIDTH, make, parameters, wide
from tests.mixers.oracles import MIXER_ORACLES

X = np.random.default_rng(0).normal(size=(2, 9, WIDTH)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("retention", {"heads": 5}, "heads could be"),
        ("gated_linear", {"heads": 4}, "key_share"),
        ("gated_linear", {"heads": 2, "rank": 0}, "rank=0"),
        ("hgrn", {"heads": 5}, "width=12 is not divisible by heads=5"),
        ("hgrn", {"heads": 2, "least": 1.0}, "less than 1"),
        ("mamba", {"head_width": 7}, "24 must be divisible by head_width=7"),
        ("delta_net", {"heads": 5}, "heads could be"),
        ("delta_net", {"largest": 2.5}, "largest=2.5 must be above 0 and at most 2"),
        ("gated_delta_net", {"heads": 4}, "width of the keys=9"),
        ("kda", {"rank": -1}, "rank=-1"),
        ("delta_product", {"count": 0}, "delta_product: count=0"),
        ("gated_delta_product", {"count": 0}, "gated_delta_product: count=0"),
        ("rwkv7", {"rank": 0}, "rank=0"),
        ("rwkv7", {"heads": 5}, "heads could be"),
        ("mlstm", {"heads": 2, "cap": -1.0}, "cap=-1.0"),
        ("mlstm", {"heads": 4}, "key_share"),
        ("ttt_linear", {"heads": 5}, "heads could be"),
        ("ttt_linear", {"heads": 4}, "channels turn in pairs"),
        ("ttt_linear", {"heads": 2, "mini_batch": 0}, "ttt_linear: mini_batch=0"),
        ("ttt_linear", {"heads": 2, "chunk": 5}, "chunk=5 must divide mini_batch=16.* is 4"),
        ("ttt_mlp", {"heads": 2, "largest": 0.0}, "ttt_mlp: .*largest=0.0 above 0"),
        ("ttt_mlp", {"heads": 2, "expansion": 0}, "expansion=0, must be at least 1"),
        ("longformer", {"window": 3}, "window=3.*even one is 2"),
        ("longformer", {"tokens": (1, 1)}, "different positions"),
        ("longformer", {"heads": 5}, "divisible by heads=5"),
        ("nystrom", {"taps": 4}, "taps=4 must be odd.*take 5"),
        ("nystrom", {"landmarks": 0}, "landmarks=0"),
        ("nystrom", {"heads": 5}, "divisible by heads=5"),
        ("reformer", {"buckets": 5}, "buckets=5 must be even.*take 6"),
        ("reformer", {"rounds": 0}, "rounds=0"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    module = MIXERS.resolve(name)(width=WIDTH, **fields)
    with pytest.raises(UserError, match=message):
        jax.eval_shape(lambda: module.init(jax.random.key(0), X, method="mix"))


def test_mamba_starts_in_its_ranges() -> None:
    module = MIXERS.resolve("mamba")(width=64, head_width=2, state=2)
    begun = jax.jit(lambda x: module.init(jax.random.key(0), x, method="mix"))
    params = jax.device_get(begun(np.zeros((1, 1, 64), np.float32))["params"])
    rate, dt = np.exp(params["rate"]), np.log1p(np.exp(params["step"]))
    assert rate.min() >= 1 and rate.max() <= 16 and rate.std() > 2
    assert dt.min() >= 1e-3 * 0.99 and dt.max() <= 0.1 * 1.01 and np.log(dt).std() > 0.8
    assert (np.asarray(params["skip"]) == 1).all()


def test_retention_forgets_at_the_rates_of_the_paper() -> None:
    expected = [0.96875, 0.984375, 0.9921875, 0.99609375]
    np.testing.assert_array_equal(decays(4), expected)


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

    kept, after = both(parameters(module), X[:, :7])  # in the middle of a mini-batch
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


def test_ttt_starts_as_in_the_paper() -> None:
    """W from N(0, 0.02^2), the rest from 0, and each text from the weights that were learned."""
    module = MIXERS.resolve("ttt_mlp")(width=64, heads=2)

    @jax.jit
    def made(x: Any) -> Any:
        params = module.init(jax.random.key(0), x, method="mix")["params"]
        begun = module.apply({"params": params}, 3, 0, jnp.float32, method="begin")
        return params, begun.matrix  # type: ignore[union-attr]

    params, begun = made(np.zeros((1, 1, 64), np.float32))
    assert params["kernel_0"].shape == (2, 32, 128) and params["kernel_1"].shape == (2, 128, 32)
    for number in (0, 1):
        assert abs(params[f"kernel_{number}"].std() - 0.02) < 1e-3
        assert not params[f"bias_{number}"].any()
    assert not params["place"].any() and not params["w_rate"]["bias"].any()
    for row in range(3):
        np.testing.assert_array_equal(begun.weights[1][0][row], params["kernel_1"])
    assert not any(x.any() for x in jax.tree.leaves(begun.sums))


def test_a_mini_batch_is_learned_at_its_end() -> None:
    """Weights change with the last token of a mini-batch alone, and the sums then begin anew; a
    negative share of a place counts as none.
    """
    module = make("ttt_linear", {"heads": 2, "mini_batch": 4})
    params = {**parameters(module), "place": np.zeros(4, np.float32)}
    step = jax.jit(
        lambda params, x, state: module.apply({"params": params}, x, state=state, method="mix")[1]
    )
    begin = module.apply({"params": params}, 2, 0, X.dtype, method="begin")

    def read(params: Any, tokens: range, state: Any) -> Any:
        for t in tokens:
            state = step(params, X[:, t : t + 1], state)
        return state

    three = read(params, range(3), begin)
    four = read(params, range(3, 4), three)
    jax.tree.map(np.testing.assert_array_equal, three.matrix.weights, begin.matrix.weights)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(three.matrix.sums))
    assert not any(np.any(x) for x in jax.tree.leaves(four.matrix.sums))
    assert np.abs(four.matrix.weights[0][0] - begin.matrix.weights[0][0]).max() > 1e-3
    never = {**params, "place": np.full(4, -9.0, np.float32)}
    same = read(never, range(9), begin).matrix.weights
    jax.tree.map(np.testing.assert_array_equal, same, begin.matrix.weights)
