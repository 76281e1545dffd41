"""The estimate of the gradient of decisions by chance is that of the expected reward, and only they
and their baseline are trained by it.
"""

from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments import losses
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.systems.protocol import GLIMPSES
from attnlab.systems.vision.glimpses import Glimpses
from attnlab.tasks.decisions import Decisions
from attnlab.tasks.schemas import Decided
from tests.tasks.tiny import loader, noisy

SIZES = {"glimpses": 2, "size": 2, "scales": 1, "hidden": 3, "width": 4, "cell": "tanh"}
SMALL = [
    *("data.examples=20", "data.valid=6", "data.test=2", "data.label=shape", "data.side=12"),
    *("batch.size=8", "system.hidden=16", "system.width=8", "system.size=3", "system.scales=2"),
    "system.glimpses=2",
]


@pytest.mark.full
def test_the_estimate_is_the_gradient_of_the_expected_reward() -> None:
    """Of a decision in two dimensions, against an integral over all places, some of them clipped;
    reward is the log-likelihood of class 0.
    """
    system = Glimpses(classes=2, deviation=0.3, **SIZES)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    image = jnp.asarray(rng.normal(size=(1, 6, 6, 1)), jnp.float32)
    shapes = jax.eval_shape(system.init, jax.random.key(0), image)["params"]
    params = jax.tree.map(lambda one: rng.normal(size=one.shape).astype(np.float32), shapes)
    terms = Decisions(Decided(reward="log_likelihood"))

    def reward(params: Any, **how: Any) -> Any:
        logits, aside = system.apply({"params": params}, image, **how, mutable=[SAMPLES, GLIMPSES])
        return jax.nn.log_softmax(logits)[:, 0], aside

    def estimate(key: jax.Array) -> jax.Array:
        def added(bias: jax.Array) -> jax.Array:
            location = {**params["location"], "bias": bias}
            got, aside = reward({**params, "location": location}, rngs={"sample": key})
            return terms(aside, carried=None, reward=got, real=jnp.ones(1, bool))[0]

        return -jax.grad(added)(params["location"]["bias"])

    def at(place: jax.Array) -> jax.Array:
        """The reward of looking at a place: the one that a bias alone leads to."""
        bias = jnp.where(jnp.abs(place) >= 1, jnp.sign(place) * 20, jnp.arctanh(place))
        forced = {"kernel": jnp.zeros_like(params["location"]["kernel"]), "bias": bias}
        return reward({**params, "location": forced})[0][0]

    grid = np.arange(-2.6, 2.6, 0.05)
    places = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    rewards = np.asarray(jax.jit(jax.vmap(at))(places.astype(np.float32)), np.float64)
    mean = np.asarray(reward(params)[1][GLIMPSES]["locations"][0][0, 1], np.float64)
    density = np.exp(-np.square((places - mean) / 0.3).sum(axis=1) / 2) / (2 * np.pi * 0.3**2)
    assert density.sum() * 0.05**2 == pytest.approx(1, abs=1e-3)
    slope = (rewards * density) @ ((places - mean) / 0.3**2) * 0.05**2  # for the mean
    exact = slope * (1 - mean**2)  # for the bias
    keys = jax.random.split(jax.random.key(1), 40_000)
    actual = np.asarray(jax.jit(jax.vmap(estimate))(keys), np.float64)
    error = actual.std(axis=0) / len(actual) ** 0.5
    assert (np.abs(actual.mean(axis=0) - exact) < 4 * error).all()
    assert (np.abs(exact) > 12 * error).any()


def test_the_baseline_follows_the_reward_and_padding_counts_for_nothing() -> None:
    rng = np.random.default_rng(0)
    log_prob, baseline = rng.normal(size=(2, 3, 4))
    rewards, valid = np.array([[1.0], [0.0], [5.0]]), np.array([True, True, False])

    def both(log_prob: jax.Array, baseline: jax.Array) -> Any:
        return losses.with_baseline(log_prob, jnp.asarray(rewards), baseline, jnp.asarray(valid))

    off = (rewards - baseline) * valid[:, None]
    choices, squares = both(log_prob, baseline)
    assert float(choices) == pytest.approx(-(off * log_prob).sum(), rel=1e-5)
    assert float(squares) == pytest.approx(np.square(off).sum(), rel=1e-5)
    of_choices, of_squares = (
        jax.grad(lambda *given, n=n: both(*given)[n], argnums=(0, 1))(log_prob, baseline)
        for n in (0, 1)
    )
    np.testing.assert_allclose(of_choices[0], -off, rtol=1e-5)
    np.testing.assert_allclose(of_squares[1], -2 * off, rtol=1e-5)
    assert not np.any(of_choices[1]) and not np.any(of_squares[0])


loaded = loader("image_classification.py:glimpses", SMALL)


def test_rewards_train_where_to_look_and_the_labels_all_else() -> None:
    task, plain = loaded(), loaded("decisions.weight=0", "decisions.baseline=0")
    liked = loaded("decisions.reward=log_likelihood")
    params = noisy(task, 0.3)
    batch = {name: rows.copy() for name, rows in task.batches(1)(0).items()}
    batch["label"][6:] = 0

    @jax.jit
    def run(params: Any, batch: Any) -> Any:
        given = (params, batch, jax.random.key(0))
        both = [jax.value_and_grad(one.loss, has_aux=True)(*given) for one in (task, plain)]
        return *both, liked.loss(*given)[1]

    ((loss, sums), full), ((bare, other), alone), third = run(params, batch)
    full, alone = (flax.traverse_util.flatten_dict(one) for one in (full, alone))
    for path, one in full.items():
        decides = path[0] in ("location", "expected")
        assert np.any(alone[path]) != decides, path
        assert np.any(np.asarray(one) != np.asarray(alone[path])) == decides, path
    assert float(bare) == float(sums["cross_entropy"]) != float(loss)
    assert float(sums["reward"]) == float(sums["correct"]) <= 6
    assert float(third["reward"]) == pytest.approx(-float(other["cross_entropy"]), rel=1e-5)
    garbled = {**batch, "image": np.where(np.arange(8)[:, None, None, None] < 6, batch["image"], 7)}
    ((again, _), _), *_ = run(params, garbled)
    assert float(again) == pytest.approx(float(loss), rel=1e-5)
    assert task.evaluate(params, "valid") == plain.evaluate(params, "valid")
    assert task.carried() is None
