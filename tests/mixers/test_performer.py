"""Attention by feature maps reads two sequences as its oracle does, refuses what it cannot do, and
estimates softmax attention.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.needs import Need
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, View
from attnlab.errors import UserError
from attnlab.layers.recurrence import recur
from attnlab.mixers.performer import Performer, directions, running
from tests.attention.cases import TOLERANCE, WIDTH, inputs, make, parameters, wide
from tests.mixers.oracles import featured

SOFTMAX = {"heads": 3, "features": 7, "map": "positive"}
RELU = {"heads": 2, "features": 5, "map": "relu"}
every = pytest.mark.parametrize(
    "config",
    [pytest.param(SOFTMAX, id="softmax"), pytest.param(RELU, id="relu", marks=pytest.mark.full)],
)


@every
def test_another_sequence_is_read_as_the_oracle_reads_it(
    config: dict[str, Any], float64: None
) -> None:
    """At once and query by query, with the effective map, which is the weights of the values."""
    module = make("performer", config)
    params = wide(parameters(module))
    query, source, valid = inputs(queries=4)
    query, source = wide(query), wide(source)
    mask = np.repeat(valid[:, None], 4, axis=1)
    expected, weights = featured(params, config, query, source, mask)

    @functools.partial(jax.jit, static_argnums=1)
    def read(query: Any, first: int, valid: Any = valid) -> Any:
        view = View(positions=first)
        return module.apply({"params": params}, query, source, view, valid, mutable=[MAPS])

    reading, collected = read(query, 0, valid)
    np.testing.assert_allclose(reading.context, expected, rtol=0, atol=TOLERANCE["float64"])
    shown = collected[MAPS]["effective"][0]
    np.testing.assert_allclose(shown, weights, rtol=0, atol=TOLERANCE["float64"])
    late = read(query[:, 3:], 3)[0].context
    np.testing.assert_allclose(late, expected[:, 3:], rtol=0, atol=TOLERANCE["float64"])
    assert (read(query, 0, np.zeros_like(valid))[0].context == 0).all()


@every
def test_what_it_cannot_do_is_refused_by_name(config: dict[str, Any]) -> None:
    Need(role="cross", stepwise=True, history=True).check(Performer, "slot")
    Need(role="self", direction="causal", cache=True, mixes=True, maps=False).check(
        Performer, "slot"
    )
    for need, said in (
        (Need(role="self", direction="causal", cache=True), "a text while it grows"),
        (Need(role="self", dense=True), "a visibility of its own"),
        (Need(role="cross", weights=True), "weights as a result"),
    ):
        with pytest.raises(UserError, match=f"slot: Performer does not support .*{said}"):
            need.check(Performer, "slot")
    x = np.zeros((2, 4, WIDTH), np.float32)
    with pytest.raises(UserError, match="Performer sums over keys"):
        jax.eval_shape(lambda x: make("performer", config).init(jax.random.key(0), x, x, CAUSAL), x)


@pytest.mark.parametrize(
    "chunk", [1, 4, *(pytest.param(chunk, marks=pytest.mark.full) for chunk in (3, 64))]
)
def test_running_scales_change_nothing(chunk: int, float64: None) -> None:
    """Sums kept as S e^-m with the largest factor so far are the plain sums, for every chunk."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 3, 9, n)) ** 2 for n in (4, 4, 5))
    factor = rng.normal(size=(2, 3, 9)) * 5

    @jax.jit
    def run(q: Any, k: Any, v: Any) -> Any:
        gates, tops = running(jnp.asarray(factor), jnp.full((2, 3), -1e30))
        return recur(q, k * jnp.exp(factor - tops)[..., None], v, gates, chunk=chunk)[0], tops

    actual, tops = run(q, k, v)
    weights = np.tril(q @ (k * np.exp(factor)[..., None]).swapaxes(-1, -2))
    np.testing.assert_allclose(actual * np.exp(tops)[..., None], weights @ v, rtol=1e-10)


def test_large_keys_to_come_leave_earlier_outputs_alone() -> None:
    """Keys whose features are e^60 times as large, in float32; and those outputs are finite."""
    module = make("performer", {"heads": 3, "features": 16})
    params, (x, _, _) = parameters(module), inputs(queries=12)
    mix = jax.jit(lambda x: module.apply({"params": params}, x, method="mix")[0])
    large = np.concatenate([x[:, :6], 12 * x[:, 6:]], axis=1)
    before, after = np.asarray(mix(x)), np.asarray(mix(large))
    np.testing.assert_allclose(after[:, :6], before[:, :6], rtol=0, atol=TOLERANCE["float32"])
    assert np.isfinite(after).all() and np.abs(after[:, 6:] - before[:, 6:]).max() > 0.1


def estimates(orthogonal: bool, draws: int, features: int, size: int = 8) -> np.ndarray:
    """phi(q) . phi(k) / exp(q . k / sqrt(D)) of one pair, for many draws of W."""
    x = 0.5 * np.random.default_rng(3).normal(size=(2, size))
    q, k = x / size**0.25

    @jax.jit
    def estimate(key: Any) -> Any:
        w = directions(key, features, size, orthogonal)
        q_map, k_map = (jnp.exp(w @ one - one @ one / 2) for one in (q, k))
        return (q_map * k_map).mean() / math.exp(q @ k)

    return np.asarray(jax.vmap(estimate)(jax.random.split(jax.random.key(1), draws)))


@pytest.mark.full
def test_random_features_estimate_the_softmax_kernel() -> None:
    """Without bias, with a variance that falls as 1 / M, and less where rows are orthogonal."""
    few, many, free = (
        estimates(orthogonal, 8_000, features)
        for orthogonal, features in ((True, 8), (True, 32), (False, 8))
    )
    for actual in (few, many, free):
        assert abs(actual.mean() - 1) < 3 * actual.std() / math.sqrt(len(actual))
    assert few.var() / many.var() == pytest.approx(4, rel=0.15)
    assert few.var() < 0.9 * free.var()


def test_rows_are_orthogonal_in_blocks() -> None:
    draw = jax.jit(lambda key: directions(key, 10, 4, True))
    w = np.asarray(draw(jax.random.key(0)), np.float64)
    for block in (w[:4], w[4:8], w[8:]):
        gram = block @ block.T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-5)
    assert np.linalg.norm(w, axis=1).std() > 0.1 and w.shape == (10, 4)


def test_features_are_drawn_anew_in_training_only_where_that_is_asked_for() -> None:
    x, _, _ = inputs()
    params = parameters(make("performer", {"heads": 3, "features": 7}))

    def mixed(rngs: Any, **fields: Any) -> Any:
        module = Performer(WIDTH, heads=3, features=7, **fields)
        return module.apply({"params": params}, x, rngs=rngs, method="mix")[0]

    @jax.jit
    def all_of_them(*keys: Any) -> Any:
        one, other = ({"dropout": key} for key in keys)
        still = mixed(None), mixed(one), mixed(None, redraw=True)
        return still, (mixed(one, redraw=True), mixed(other, redraw=True), mixed(None, seed=1))

    (fixed, *same), others = all_of_them(jax.random.key(0), jax.random.key(1))
    for actual in same:
        np.testing.assert_array_equal(actual, fixed)
    for actual in others:
        assert np.abs(actual - fixed).max() > 1e-2
    assert np.abs(others[0] - others[1]).max() > 1e-2
