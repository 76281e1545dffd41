"""Single scores have bounds, zero gradients and starts, and refuse impossible fields."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments.protocol import softmax
from attnlab.attention.scores import SCORES
from attnlab.config.registry import made
from attnlab.errors import UserError
from tests.attention.test_scores import TK, D, J, drawn, inputs, whole


def scores_of(name: str, params: Any, q: Any, k: Any, **fields: Any) -> np.ndarray:
    """Scores [B,H,Tq,Tk] of a registered score with these parameters and fields."""
    score = made(SCORES, {"name": name, **fields})()
    run = jax.jit(functools.partial(score.apply, method=whole))
    return np.asarray(run({"params": params}, q, k, np.arange(k.shape[2])))


def variables_of(name: str, **fields: Any) -> Any:
    """Its parameters as `test_scores.drawn` draws them."""
    return drawn(made(SCORES, {"name": name, **fields})())["params"]


def started(name: str, **fields: Any) -> Any:
    """Its parameters as they are initialised."""
    q = jnp.ones((1, 1, 1, D))
    score = made(SCORES, {"name": name, **fields})()
    return score.init(jax.random.key(0), q, q, np.arange(1), method=whole)["params"]


def test_where_query_and_key_are_equal_distances_are_zero_and_flat() -> None:
    """Exactly 0 and gradient 0 at the tie; close by no digits are lost, and the Euclidean gradient
    has length 1 at any distance.
    """
    q = np.random.default_rng(0).normal(size=(1, 1, 1, D)).astype(np.float32) * 100
    for name in ("euclidean", "gaussian"):
        score = made(SCORES, {"name": name})()
        variables = drawn(score)
        of_key = functools.partial(score.apply, variables, q, j=J[:1], method=whole)
        scores, pull = jax.vjp(of_key, q)
        assert (scores == 0.0).all() and (pull(jnp.ones_like(scores))[0] == 0.0).all()
    by = q + np.float32(2.0**-8)
    apart = np.linalg.norm(by.astype(np.float64) - q)
    assert scores_of("euclidean", {}, q, by).item() == pytest.approx(-apart, rel=1e-6)
    near = np.zeros((1, 1, 1, D), np.float32)
    near[..., 2] = 1e-15
    score = made(SCORES, "euclidean")()
    slope = jax.grad(lambda k: score.apply({}, 0 * near, k, J[:1], method=whole).sum())(near)
    np.testing.assert_allclose(slope[0, 0, 0], -np.eye(D)[2], atol=1e-6)


def test_cosine_at_the_zero_vector() -> None:
    """Similarity 0 to everything, and a gradient of at most beta / epsilon."""
    q, k = inputs()
    for zero in (np.zeros_like(q), np.full_like(q, 1e-30)):
        score = made(SCORES, {"name": "cosine", "strength": "fixed"})()
        of_query = lambda q, score=score: score.apply({}, q, k, J, method=whole)
        scores, pull = jax.vjp(of_query, zero)
        assert np.abs(scores).max() < 1e-20
        slope = np.asarray(pull(np.ones_like(scores))[0])
        assert np.isfinite(slope).all() and 0.0 < np.abs(slope).max() <= 5.0 / 1e-6 * TK


def test_location_with_nothing_below_its_limit_is_even_and_finite() -> None:
    """As documented: an alignment sees equal scores there."""
    q, k = inputs()
    actual = scores_of("location", variables_of("location", limit=2), q, k, limit=2)
    weights, pull = jax.vjp(lambda s: softmax(s, J >= 2), jnp.asarray(actual))
    np.testing.assert_allclose(weights[..., 2:], 1 / 3, atol=1e-6)
    assert np.isfinite(pull(jnp.ones_like(weights))[0]).all()


def test_a_soft_cap_may_be_turned_where_the_score_inside_may() -> None:
    for name in SCORES.names():
        capped = SCORES.resolve("soft_capped")(score=name)
        assert capped.rotary == SCORES.resolve(name)().rotary and capped.product is False
    twice = {"name": "soft_capped", "score": {"name": "location"}}
    own = "attnlab.attention.scores.protocol:Score"  # by dotted path, as a user's
    for score in (twice, own):
        assert SCORES.resolve("soft_capped")(score=score).rotary is False


def test_starts() -> None:
    """beta 5 and tau 1 as softplus gives them, g = log2(n^2 - n), b zero, v of concat not zero: it
    would leave W_a without gradient.
    """
    softplus = lambda params: math.log(1 + math.exp(params["positive"]["raw"][0]))
    assert softplus(started("cosine")) == pytest.approx(5.0, abs=1e-5)
    assert softplus(started("gaussian", tau=0.01)) == pytest.approx(0.01, abs=1e-6)
    assert started("qk_norm", length=10)["g"][0] == pytest.approx(math.log2(90))
    assert (started("activated_general")["b"] == 0.0).all()
    assert np.abs(started("concat", hidden=9)["v"]).max() > 0.05
    assert set(variables_of("cosine", strength="emitted")) == {"positive", "emit"}
    shapes = jax.tree.map(jnp.shape, variables_of("concat_identity"))
    assert shapes == {"w_a": {"kernel": (D, D)}, "v": {"kernel": (D, 1)}}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("additive", {"hidden": 0}, "score additive: hidden=0, must be at least 1"),
        ("concat", {"hidden": 0}, "score concat: hidden=0, must be at least 1"),
        ("location", {"limit": 0}, "score location: limit=0, must be at least 1"),
        ("cosine", {"beta": 0.0}, "score cosine: beta=0.0, must be a number above 0"),
        ("cosine", {"epsilon": -1e-6}, "cosine: epsilon=-1e-06, must be a number above 0"),
        ("cosine", {"strength": "learnt"}, "score.strength='learnt'; did you mean 'learned'?"),
        ("gaussian", {"tau": math.inf}, "score gaussian: tau=inf, must be a number above 0"),
        ("gaussian", {"spread": "emitted"}, "score.spread='emitted'; choose from: fixed, learned"),
        ("qk_norm", {"length": 1}, "score qk_norm: length=1, must be at least 2"),
        ("qk_norm", {"epsilon": math.nan}, "qk_norm: epsilon=nan, must be a number above 0"),
        ("qk_layernorm", {"epsilon": 0.0}, "qk_layernorm: epsilon=0.0, must be a number above 0"),
        ("qk_rmsnorm", {"epsilon": 0.0}, "qk_rmsnorm: epsilon=0.0, must be a number above 0"),
        ("scaled_dot", {"over": -1.0}, "scaled_dot: over=-1.0, must be a number of at least 0"),
        ("soft_capped", {"cap": 0.0}, "score soft_capped: cap=0.0, must be a number above 0"),
        ("soft_capped", {"score": "dott"}, "unknown score 'dott'; did you mean 'dot'"),
        ("activated_general", {"act": "tan"}, "score.act='tan'; did you mean 'tanh'?"),
        ("general", {"hidden": 3}, "score: general has no field 'hidden' to set"),
    ],
)
def test_impossible_values_are_refused(name: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        drawn(made(SCORES, {"name": name, **fields})())
    assert words in str(caught.value)
