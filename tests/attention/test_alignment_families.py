"""Each family of alignments has its reference values, exact reductions and limits. Promises of all:
`test_alignments.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.entmax import (
    LEAST,
    bisected,
    entmax,
    sorted_linear,
    sorted_square,
)
from attnlab.attention.alignments.protocol import log_softmax, softmax
from attnlab.attention.view import EVERYTHING, View
from attnlab.errors import UserError
from tests.attention import alignment_oracles
from tests.rounding import assert_close

sparsemax = jax.jit(lambda z, mask=None: entmax(z, mask, 1.0, sorted_linear))
entmax15 = jax.jit(lambda z, mask=None: entmax(z, mask, 0.5, sorted_square))
bisect = jax.jit(lambda z, excess, mask=None: entmax(z, mask, excess, bisected))


@pytest.fixture
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def assert_near(found: Any, expected: Any, off: float = 1e-6) -> None:
    """Equal up to an absolute difference."""
    np.testing.assert_allclose(found, expected, atol=off)


def weigh(
    name: str,
    fields: Any,
    params: Any,
    scores: Any,
    query: Any = None,
    first: int = 0,
    lengths: Any = None,
    key: Any = None,
) -> jax.Array:
    """Weights of scores [B,H,Tq,Tk] whose first query stands at `first`; every key may be seen, or
    those before `lengths`; with a key, sampled.
    """
    batch, _, queries, keys = np.shape(scores)
    valid = np.arange(keys) < np.reshape(keys if lengths is None else lengths, (-1, 1))
    valid = np.broadcast_to(valid, (batch, keys))
    module = ALIGNMENTS.resolve(name)(**fields)

    @jax.jit
    def run(params: Any, scores: Any, query: Any) -> jax.Array:
        view = View(query=query, valid=jnp.asarray(valid))
        view = view.among(first + jnp.arange(queries), jnp.arange(keys))
        rngs = {} if key is None else {"sample": key}
        return module.apply({"params": params}, scores, valid[:, None, None], view, rngs=rngs)

    return run(params, scores, np.zeros((batch, queries, 1)) if query is None else query)


@pytest.mark.quick
def test_softmax_is_the_formula_and_a_constant_changes_nothing(scores: np.ndarray) -> None:
    mask = np.random.default_rng(1).random((4, 6)) < 0.6
    mask[:, 0] = True
    raised = np.exp(scores.astype(np.float64)) * mask
    assert_near(softmax(scores, mask), raised / raised.sum(-1, keepdims=True), 1e-7)
    assert_near(np.exp(log_softmax(scores, mask)) * mask, softmax(scores, mask), 1e-7)
    assert_near(softmax(scores, None), softmax(scores, np.ones_like(mask)), 1e-7)
    assert_near(softmax(scores + 50.0, mask), softmax(scores, mask), 1e-5)
    # where the weight itself is 0
    assert np.asarray(log_softmax(np.array([[0.0, -1e4]]), None))[0, 1] == -1e4


def test_a_head_that_wants_nothing_gets_nothing() -> None:
    for low in (-200.0, -1e30):
        assert not np.any(weigh("softmax_plus_one", {}, {}, np.full((1, 2, 1, 6), low, np.float32)))


@pytest.mark.quick
def test_entmax_runs_from_softmax_to_sparsemax(scores: np.ndarray) -> None:
    mask = np.random.default_rng(1).random((4, 6)) < 0.6
    mask[:, 0] = True
    assert_near(bisect(scores, 1e-4, mask), softmax(scores, mask), 1e-4)
    assert_near(bisect(scores, LEAST, mask), softmax(scores, mask), 2e-6)
    assert_near(bisect(scores, 0.5, mask), entmax15(scores, mask))
    assert_near(bisect(scores, 1.0, mask), sparsemax(scores, mask))
    of_rows = bisect(scores, np.array([[1e-4], [0.5], [1.0], [0.5]]), mask)
    assert_close(of_rows[1:2], entmax15(scores, mask)[1:2], eps=8)
    # the bounds count the keys that may be seen
    many = np.concatenate([scores, np.full((4, 500), 5.0, np.float32)], axis=1)
    assert_close(bisect(many, 0.3, np.arange(506) < 6)[:, :6], bisect(scores, 0.3), eps=8)


@pytest.mark.parametrize(
    "excess",
    [1e-5, 0.5, *(pytest.param(excess, marks=pytest.mark.full) for excess in (0.01, 0.99, 1.5))],
)
def test_derivative_in_alpha_is_that_of_the_paper(excess: float, scores: np.ndarray) -> None:
    """Proposition 1 of Correia et al. 2019 in float64, and its limit at alpha = 1; forward mode
    too.
    """
    _, actual = jax.jvp(lambda e: bisect(scores, e), (jnp.float32(excess),), (jnp.float32(1.0),))
    row = lambda z: alignment_oracles.Row({}, {}, z.astype(np.float64), np.ones(6, bool), z, 0)
    # in float64: the paper's form loses digits by the square of alpha - 1
    p = np.stack([alignment_oracles.tsallis(row(z), 1 + excess) for z in scores])
    logs = np.log(np.where(p > 0, p, 1.0))
    if excess < 1e-3:
        expected = p * ((p * logs**2).sum(-1, keepdims=True) - logs**2) / 2
    else:
        tilted = np.where(p > 0, np.where(p > 0, p, 1.0) ** (1 - excess), 0.0)
        tilted /= tilted.sum(-1, keepdims=True)
        h = -p * logs
        expected = (p - tilted) / excess**2 + (h - tilted * h.sum(-1, keepdims=True)) / excess
    assert_near(actual, expected, 2e-5 if excess < 1e-3 else 5e-6)


def test_every_head_learns_its_own_alpha() -> None:
    scores = np.random.default_rng(0).normal(size=(1, 3, 2, 5)).astype(np.float32)
    logit = np.array([-30.0, 0.0, 30.0], np.float32)  # softmax, 1.5, sparsemax
    actual = weigh("learned_entmax", {}, {"logit": logit}, scores)
    for head, same in enumerate((lambda z: softmax(z, None), entmax15, sparsemax)):
        assert_near(actual[0, head], same(scores[0, head]), 2e-6)
    start = ALIGNMENTS.resolve("learned_entmax")(alpha=1.2)
    view = EVERYTHING.over(2, 5)
    begun = start.init(jax.random.key(0), scores, None, view)["params"]["logit"]
    assert_close(1 + jax.nn.sigmoid(begun), [1.2] * 3, eps=8)


def test_above_two_gradients_stay_finite() -> None:
    for z in np.float32([[1.0, 1.0, 0.5, 0.5], [0.25, 0.0, -0.24999999, -3.0]]):
        for excess in (2.0, 9.0, 50.0):
            weights, pull = jax.vjp(lambda z, e: bisect(z, e), z, jnp.float32(excess))
            slopes = pull(jnp.arange(4.0))
            assert all(np.isfinite(actual).all() for actual in (weights, *slopes))


@pytest.mark.quick
def test_sigmoid_can_be_cut_into_blocks() -> None:
    scores = np.random.default_rng(0).normal(size=(2, 1, 3, 6)).astype(np.float32)
    whole = weigh("sigmoid", {}, {}, scores, lengths=[6, 4])
    module, seen = ALIGNMENTS.resolve("sigmoid")(), jnp.array([6, 4])[:, None, None, None]
    for start in (0, 3):  # a kernel that shows three keys at a time says how many there are in all
        j = start + jnp.arange(3)
        view = View(key_counts=seen).among(jnp.arange(3), j)
        block = module.apply({}, scores[..., start : start + 3], (j < seen), view)
        assert_near(block, whole[..., start : start + 3], 1e-7)


def centred(p: float, n: int) -> Any:
    """Parameters with which a query of one 1.0 predicts p of n."""
    v = np.array([[np.log(p / (n - p)) / np.tanh(1.0)]])
    return {"w_position": {"kernel": np.ones((1, 1))}, "v": v}


@pytest.mark.quick
def test_local_windows_stand_where_the_paper_puts_them() -> None:
    flat, one = np.zeros((1, 1, 1, 41), np.float32), jnp.ones((1, 1, 1))
    middle = centred(20.0 + 1e-4, 41)
    actual = np.asarray(weigh("local_p", {"reach": 10}, middle, flat, one))[0, 0, 0]
    assert actual.sum() == pytest.approx(0.576, abs=1e-3)
    assert (np.flatnonzero(actual) == np.arange(10, 31)).all()
    actual = np.asarray(weigh("local_p", {"reach": 2}, centred(3.4, 41), flat, one))[0, 0, 0]
    assert (np.flatnonzero(actual) == np.arange(1, 6)).all()  # around floor(3.4)
    gauss = np.exp(-((np.arange(1, 6) - 3.4) ** 2) / 2)
    assert_near(actual[1:6], gauss / 5)
    # the four keys at most 2 from 3.4 itself
    assert gauss[1:].sum() / 4 == pytest.approx(0.603, abs=1e-3)
    far = {"w_position": {"kernel": np.ones((1, 1))}, "v": np.full((1, 1), 1e4)}
    end = weigh("local_p", {"reach": 1}, far, flat, one, lengths=[5])
    assert np.flatnonzero(end).tolist() == [3, 4]  # a sigmoid of 1 still centres on a real key
    scores = np.zeros((2, 1, 6, 6), np.float32)
    actual = np.asarray(weigh("local_m", {"reach": 1}, {}, scores, lengths=[6, 3]))
    for b, i in np.ndindex(2, 6):
        at, length = min(i, [6, 3][b] - 1), [6, 3][b]
        near_by = [j for j in (at - 1, at, at + 1) if 0 <= j < length]
        assert np.flatnonzero(actual[b, 0, i]).tolist() == near_by
    step = weigh("local_m", {"reach": 0}, {}, scores[:1, :, :1], first=4)  # of a decoder
    assert np.flatnonzero(step).tolist() == [4]


def test_monotonic_alone_starts_again_saturates_and_is_noisy_on_demand() -> None:
    scores = np.random.default_rng(0).normal(size=(1, 1, 3, 5)).astype(np.float32)
    params = {"offset": np.zeros(1)}
    alone = weigh("monotonic", {}, params, scores[:, :, 2:], first=2)
    stop = 1 / (1 + np.exp(-scores[0, 0, 2]))
    assert_close(alone[0, 0, 0], stop * np.cumprod(np.append(1.0, 1 - stop[:-1])), eps=8)
    sure = np.where(
        np.array([[0, 1, 0, 0, 1], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0]]), 1e3, -1e3
    ).astype(np.float32)[None, None]
    path, pull = jax.vjp(lambda s: weigh("monotonic", {}, params, s), sure)
    # stops, goes on, runs off
    np.testing.assert_array_equal(path[0, 0], [*np.eye(5)[[1, 3]].tolist(), [0.0] * 5])
    assert np.isfinite(pull(path)[0]).all()
    still, key = weigh("monotonic", {}, params, scores), jax.random.key(0)
    assert abs(weigh("monotonic", {}, params, scores, key=key) - still).max() > 1e-2
    quiet = weigh("monotonic", {"noise": 0.0}, params, scores, key=key)
    np.testing.assert_array_equal(quiet, still)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("entmax", {"alpha": 1.0}, "entmax.*alpha=1.0.*softmax"),
        ("entmax", {"alpha": float("nan")}, "entmax.*alpha=nan"),
        ("learned_entmax", {"alpha": 2.0}, "learned_entmax.*between 1 and 2"),
        ("local_m", {"reach": -1}, "local_m.*reach=-1.*at least 0"),
        ("local_p", {"reach": 0}, "local_p.*reach=0.*at least 1"),
        ("monotonic", {"noise": -0.5}, "monotonic.*noise=-0.5"),
        ("hard", {"soft": 1.5}, "hard.*soft=1.5.*0 to 1"),
        ("gumbel", {"tau": 0.0}, "gumbel.*tau=0.0.*above 0"),
    ],
)
def test_impossible_fields_are_refused_by_name(name: str, fields: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        params = {"logit": np.zeros(1), "offset": np.zeros(1)}
        weigh(name, fields, params, np.zeros((1, 1, 1, 3), np.float32))
