"""Sampled alignments draw as often as softmax says, and the losses that train them are unbiased; with
their variance, entropy and coverage.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments import ALIGNMENTS, losses
from attnlab.attention.alignments.losses import (
    Episode,
    followed,
    gathered,
    surrogate,
    to_go,
    total,
    uncovered,
)
from attnlab.attention.alignments.protocol import SAMPLES, log_softmax, softmax
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.view import View
from tests.rounding import assert_close

DRAWS = 10_000


def weigh(
    name: str, scores: Any, mask: Any = None, key: Any = None, samples: bool = False, **fields: Any
) -> Any:
    """Weights of scores [B,H,Tq,Tk], with a key sampled; with `samples` also what was put aside."""
    batch, _, queries, keys = scores.shape
    how: dict[str, Any] = {"mutable": [SAMPLES]} if samples else {}
    module = ALIGNMENTS.resolve(name)(**fields)

    @jax.jit
    def run(scores: Any, mask: Any, key: Any) -> Any:
        view = View(valid=jnp.ones((batch, keys), bool)).over(queries, keys)
        rngs = {} if key is None else {"sample": key}
        return module.apply({}, scores, mask, view, rngs=rngs, **how)

    return run(scores, mask, key)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["hard", "straight_through", "gumbel"])
def test_hard_is_soft_where_softmax_is_sure(name: str) -> None:
    scores = jnp.asarray(1e4 * np.eye(5)[[3, 0, 4]], jnp.float32)[None, None]
    np.testing.assert_array_equal(weigh(name, scores, key=jax.random.key(0)), softmax(scores, None))


@pytest.mark.quick
@pytest.mark.parametrize("name", ["hard", "gumbel"])
def test_samples_come_as_often_as_softmax_says_and_never_where_masked(name: str) -> None:
    scores, mask = jnp.array([0.5, 3.0, -1.0, 0.1, 1.0]), np.array([True, False, True, True, True])
    many = jnp.broadcast_to(scores, (DRAWS, 1, 1, 5))
    drawn = np.asarray(weigh(name, many, mask, jax.random.key(0)))
    assert set(np.unique(drawn)) == {0.0, 1.0} and (drawn.sum(-1) == 1.0).all()
    counts, expected = drawn.sum((0, 1, 2)), DRAWS * np.asarray(softmax(scores, mask))
    assert counts[1] == 0
    # chi-square, 3 degrees of freedom, 0.1 percent
    assert ((counts - expected)[mask] ** 2 / expected[mask]).sum() < 16.27
    np.testing.assert_array_equal(drawn, weigh(name, many, mask, jax.random.key(0)))
    assert (drawn != np.asarray(weigh(name, many, mask, jax.random.key(1)))).any()


@pytest.mark.quick
def test_no_gradient_flows_through_a_sample_and_half_the_rows_may_be_soft() -> None:
    rng = np.random.default_rng(0)
    scores = jnp.asarray(rng.normal(size=(200, 2, 1, 4)), jnp.float32)
    direction = rng.normal(size=4).astype(np.float32)
    slope = jax.grad(
        lambda s, **how: (weigh("hard", s, key=jax.random.key(0), **how) * direction).sum()
    )
    assert (np.asarray(slope(scores)) == 0.0).all()
    mixed, put = weigh("hard", scores, key=jax.random.key(0), samples=True, soft=0.5)
    soft = np.isclose(mixed, softmax(scores, None), atol=1e-7).all((1, 2, 3))
    assert 70 < soft.sum() < 130 and (np.asarray(mixed)[~soft].max(-1) == 1.0).all()
    log_prob = np.asarray(put[SAMPLES]["log_prob"][0])
    assert (log_prob[soft] == 0.0).all() and (log_prob[~soft] < 0.0).all()
    assert (np.asarray(slope(scores, soft=0.5)) != 0.0).any((1, 2, 3)).tolist() == soft.tolist()
    # without a stream: the best
    np.testing.assert_array_equal(weigh("hard", scores, soft=0.5), weigh("hard", scores))


@pytest.mark.quick
def test_a_sample_reports_its_log_probability_and_the_entropy() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 2, 4, 5)).astype(np.float32)
    mask = np.random.default_rng(1).random(scores.shape) < 0.7
    mask[..., 0] = True
    mask[1, 1, 2] = False
    drawn, put = weigh("hard", scores, mask, jax.random.key(0), samples=True)
    p = np.asarray(softmax(scores, mask), np.float64)
    logs = np.log(np.where(p > 0, p, 1.0))
    assert_close(put[SAMPLES]["log_prob"][0], (np.asarray(drawn) * logs).sum(-1), eps=8)
    np.testing.assert_allclose(put[SAMPLES]["entropy"][0], -(p * logs).sum(-1), atol=1e-6)
    assert put[SAMPLES]["entropy"][0][1, 1, 2] == put[SAMPLES]["log_prob"][0][1, 1, 2] == 0.0
    module = MultiHead(width=6, heads=2, alignment="hard")
    x = scores[:, 0, :, :1] * np.ones(6, np.float32)

    @jax.jit
    def look(x: Any) -> Any:
        params = {"params": module.init(jax.random.key(0), x, x)["params"]}
        return module.apply(params, x, x, rngs={"sample": jax.random.key(0)}, mutable=[SAMPLES])[1]

    put = look(x)
    log_prob, entropy = gathered(put[SAMPLES])
    assert log_prob.shape == entropy.shape == (3, 4)
    np.testing.assert_allclose(log_prob, put[SAMPLES]["alignment"]["log_prob"][0].sum(1), atol=1e-6)
    # looks of one query, stacked along axis 2 by a scan over time
    stacked = jax.tree.map(lambda a: a[..., None], put[SAMPLES])
    assert_close(gathered({"left": stacked, "right": stacked})[1], 2 * entropy, eps=8)


FACTS = np.random.default_rng(4).normal(size=(3, 3, 3)).astype(np.float32)


def episode_of(params: Any, path: tuple[int, int]) -> Episode:
    """A sentence of two words over three regions: the second choice and both words depend on what
    was looked at first.
    """
    (first, second), facts = path, jnp.asarray(FACTS)
    ways = (params["first"], first), (params["second"][first], second)
    logs = jnp.stack([log_softmax(logits, None)[chosen] for logits, chosen in ways])
    odds = jnp.stack([params["second"][first], params["first"]])
    word = params["word"]
    off = word - facts[0, first], word * facts[1, second] + facts[2, first]
    words = jnp.stack([-jnp.sum(one**2) for one in off])
    entropy = -(softmax(odds, None) * log_softmax(odds, None)).sum(-1)
    return Episode(words[None], logs[None], entropy[None], jnp.ones((1, 2), bool))


@pytest.mark.quick
@pytest.mark.parametrize("rewards", [total, to_go])
@pytest.mark.parametrize("baseline", [0.0, [-3.0, 2.5]])
def test_the_estimator_is_unbiased(rewards: Any, baseline: Any) -> None:
    """Over all nine paths, sum_s p(s) grad surrogate = grad of -sum_s p(s) log p(y | s), exactly,
    for any constant baseline.
    """
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32)
        for name, shape in (("first", 3), ("second", (3, 3)), ("word", 3))
    }
    bias = jnp.asarray(baseline if rewards is to_go or baseline == 0.0 else baseline[:1])
    first, second = np.array(list(itertools.product(range(3), repeat=2))).T

    def bound(one: Any) -> jax.Array:
        return -jnp.exp(one.log_prob.sum()) * one.log_likelihood.sum()

    def estimate(one: Any) -> jax.Array:
        return jax.lax.stop_gradient(jnp.exp(one.log_prob.sum())) * surrogate(
            one, rewards(one), bias
        )

    def slope(of: Any) -> Any:
        over_paths = lambda params: jax.vmap(lambda *path: of(episode_of(params, path)))(
            first, second
        ).sum()
        return jax.grad(over_paths)(params)

    expected, actual = jax.jit(lambda: (slope(bound), slope(estimate)))()
    for name in params:
        scale = max(1.0, float(abs(expected[name]).max()))
        np.testing.assert_allclose(actual[name], expected[name], atol=1e-6 * scale)
        assert abs(expected[name]).max() > 0.1


@pytest.mark.quick
def test_a_baseline_reduces_the_variance() -> None:
    logits = jnp.array([0.2, -0.1, 0.4])
    rng = np.random.default_rng(0)
    likelihood = jnp.asarray(rng.normal(-5.0, 1.0, size=(DRAWS, 1)), jnp.float32)
    p = np.asarray(softmax(logits, None), np.float64)
    chosen = jnp.asarray(rng.choice(3, size=DRAWS, p=p / p.sum()))

    def one(logits: Any, likelihood: Any, at: Any, baseline: Any) -> jax.Array:
        log_prob, none = log_softmax(logits, None)[at][None, None], jnp.zeros((1, 1))
        episode = Episode(likelihood[None], log_prob, none, none == 0)
        return surrogate(episode, total(episode), baseline)

    slopes = jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0, 0, None)))
    drawn = [slopes(logits, likelihood, chosen, baseline) for baseline in (0.0, -5.0)]
    spread = [np.asarray(slope).var(0).sum() for slope in drawn]
    assert spread[1] < spread[0] / 10


def test_the_entropy_term_raises_entropy_and_padding_counts_nowhere() -> None:
    logits = jnp.array([[1.0, 0.0, -1.0], [0.3, 0.2, 2.0]])
    valid = jnp.array([[True, False]])

    def entropy(logits: Any) -> jax.Array:
        return -(softmax(logits, None) * log_softmax(logits, None)).sum(-1)

    def loss(logits: Any, garbage: Any) -> jax.Array:
        numbers = jnp.array([[0.0, garbage]])
        episode = Episode(numbers, numbers, entropy(logits)[None], valid)
        return surrogate(episode, to_go(episode), 0.0, reward_weight=0.0, entropy_weight=0.5)

    sloped, entropies = jax.jit(jax.value_and_grad(loss)), jax.jit(entropy)
    (value, slope), before = sloped(logits, 0.0), entropies(logits)
    assert value == pytest.approx(-0.5 * float(before[0]), abs=1e-6)
    stepped = logits - 0.1 * slope
    assert entropies(stepped)[0] > before[0] and (stepped[1] == logits[1]).all()
    assert sloped(logits, 1e4)[0] == value


def test_rewards_and_their_moving_baseline() -> None:
    valid = np.array([[True, True, True], [True, False, False]])
    likelihood, none = jnp.array([[-1.0, -2.0, -4.0], [-3.0, 50.0, 50.0]]), jnp.zeros((2, 3))
    episode = Episode(likelihood, none, none, jnp.asarray(valid))
    np.testing.assert_allclose(total(episode), [[-7.0], [-3.0]])
    np.testing.assert_allclose(to_go(episode), [[-7.0, -6.0, -4.0], [-3.0, 0.0, 0.0]])
    assert_close(
        followed(jnp.array([-2.0]), total(episode), valid), [0.9 * -2.0 + 0.1 * -5.0], eps=8
    )
    moved = followed(jnp.array([-2.0, -1.0, 0.0]), jnp.where(valid, to_go(episode), 1e4), valid)
    assert_close(moved, [-2.3, -0.9 - 0.6, -0.4], eps=8)  # later steps: only the row that has them
    np.testing.assert_allclose(followed(moved, to_go(episode), np.zeros_like(valid)), moved)
    assert losses.DECAY == 0.9


@pytest.mark.quick
def test_doubly_stochastic_values() -> None:
    uniform, steps = jnp.full((2, 1, 10, 196), 1 / 196), jnp.ones((2, 10), bool)

    def mean_loss(*arguments: Any, **options: float) -> jax.Array:
        return uncovered(*arguments, **options).mean()

    loss = jax.jit(mean_loss)
    assert loss(uniform, steps) == pytest.approx(176.51, abs=5e-3)
    assert loss(uniform, steps) == pytest.approx(196 * (1 - 10 / 196) ** 2, rel=1e-6)
    shuffled = jnp.asarray(np.eye(5)[np.random.default_rng(0).permutation(5)])[None, None]
    assert loss(shuffled, jnp.ones((1, 5), bool)) == 0.0
    assert loss(shuffled, jnp.ones((1, 5), bool), tau=1.5) == pytest.approx(5 * 0.25)
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3, 5)).astype(np.float32)
    steps = np.array([[True] * 5, [True] * 3 + [False] * 2])
    real = np.asarray(weights) * np.asarray(steps)[:, None, :, None]
    expected = ((1 - real.sum(axis=2)) ** 2).sum(axis=-1).mean()
    assert loss(weights, steps) == pytest.approx(expected, rel=1e-6)
    # padded steps and regions leave it alone
    wider = np.pad(weights, ((0, 0), (0, 0), (0, 2), (0, 3)))
    more, real = np.pad(steps, ((0, 0), (0, 2))), np.tile(np.arange(7) < 4, (2, 1))
    assert loss(wider, more, real) == pytest.approx(expected, rel=1e-6)
    spoilt = np.where(more[:, None, :, None], wider, np.float32(1e4))
    slope = np.asarray(jax.jit(jax.grad(mean_loss))(spoilt, more))
    assert (slope[~np.broadcast_to(more[:, None, :, None], slope.shape)] == 0.0).all()
