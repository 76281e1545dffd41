"""What is said of the pointer-generator beyond its log-probabilities: coverage, its loss, the
mixture, and what does not fit it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.systems.recurrent.pointer_generator import mixture, scattered
from tests.systems.checks import SPECS, VOCABULARY, batch, make, parameters
from tests.systems.oracles.recurrent import copying_looks
from tests.systems.tiny import wide

SPEC = SPECS["pointer_generator"]
DIRECTION = np.random.default_rng(3).normal(size=(3, 5, VOCABULARY)).astype(np.float32)
FILE = "configs/translation.py:pointer_generator"


@functools.cache
def expected() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, weights and coverage loss of the oracle."""
    params, (sources, targets) = wide(parameters(make(SPEC))), batch()
    pairs = zip([source[source != 0] for source in sources], targets, strict=True)
    found = [copying_looks(params, SPEC, source, target) for source, target in pairs]
    log_probs, weights, again = zip(*found, strict=True)
    room = sources.shape[1]
    padded = [np.pad(one, ((0, 0), (0, room - one.shape[1]))) for one in weights]
    return np.array(log_probs), np.array(padded), np.array(again)


@functools.cache
def program() -> Any:
    """(params, source, target, direction) to the slopes of one number, and log-probabilities,
    weights and coverage loss; compiled once.
    """
    system = make(SPEC)

    def total(params: Any, source: Any, target: Any, direction: Any) -> tuple[jax.Array, Any]:
        log_probs, collected = system.apply(
            {"params": params}, source, target, mutable=[LOSSES, MAPS]
        )
        (losses,) = collected[LOSSES]["looks"]
        assert set(losses) == {"coverage"}
        again = losses["coverage"].reshape(target.shape)
        return (log_probs * direction).sum() + again.sum(), (
            log_probs,
            system.alignment(system.maps(collected[MAPS])),
            again,
        )  # type: ignore[operator]

    return jax.jit(jax.grad(total, has_aux=True))


def seen(params: Any = None, source: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, weights and coverage loss of the system."""
    given = parameters(make(SPEC)) if params is None else params
    ids = batch() if source is None else (source, batch()[1])
    return jax.tree.map(np.asarray, program()(narrow(given), *ids, DIRECTION)[1])


def narrow(params: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)


def test_coverage_its_loss_and_the_weights_are_the_papers() -> None:
    log_probs, actual, losses = seen()
    _, weights, again = expected()
    np.testing.assert_allclose(actual, weights, atol=1e-6)
    np.testing.assert_allclose(losses, again, atol=1e-6)
    assert (again[:, 0] == 0.0).all() and (again[:, 1:] > 0.05).all()
    assert (again <= 1.0 + 1e-9).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, atol=2e-6)


def test_of_several_heads_the_mean_is_copied() -> None:
    """With the gate shut, of a mechanism with two heads."""
    system = make({**SPEC, "attention": {"name": "multihead", "heads": 2}, "coverage": "none"})
    (source, target), params = batch(), parameters(system)
    shut = {**params, "gate": {"kernel": 0 * params["gate"]["kernel"], "bias": np.full(1, -60.0)}}
    apply = jax.jit(lambda params: system.apply({"params": params}, source, target, mutable=[MAPS]))
    log_probs, collected = apply(narrow(shut))
    (actual,) = system.maps(collected[MAPS]).values()  # type: ignore[union-attr]
    assert actual.weights.shape[1] == 2
    assert float(jnp.abs(actual.weights[:, 0] - actual.weights[:, 1]).max()) > 1e-3
    np.testing.assert_allclose(
        np.exp(log_probs), scattered(actual.weights.mean(axis=1), source, VOCABULARY), atol=1e-6
    )


def test_words_that_stand_twice_are_copied_by_both_weights() -> None:
    weights = np.array([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]], np.float32)
    source = np.array([[4, 5, 4]])
    np.testing.assert_array_equal(
        scattered(jnp.asarray(weights), source, 6),
        [[[0, 0, 0, 0, 0.75, 0.25], [0, 0, 0, 0, 1.0, 0]]],
    )


def test_words_that_no_weight_copies_have_the_slope_that_would_copy_them() -> None:
    """d log P / d copied = (1 - g) / P for all words, where a hard alignment chose one; finite
    where P is 0 to float32.
    """
    scores = np.array([2.0, 0.0, -1.0, -300.0], np.float32)
    copied = np.array([0.0, 1.0, 0.0, 0.0], np.float32)
    for gate in (-1.5, 0.5):
        g = 1 / (1 + np.exp(-gate))
        expected = (
            g * np.exp(scores, dtype=np.float64) / np.exp(scores, dtype=np.float64).sum()
            + (1 - g) * copied
        )
        actual, slopes = jax.value_and_grad(
            lambda copied, gate=gate: mixture(scores, jnp.full(1, gate), copied)[:3].sum()
        )(copied)
        np.testing.assert_allclose(actual, np.log(expected[:3]).sum(), rtol=1e-6)
        np.testing.assert_allclose(slopes, [*((1 - g) / expected[:3]), 0.0], rtol=1e-5)
    every = jax.grad(lambda *given: mixture(*given).sum(), argnums=(0, 1, 2))(
        scores, jnp.zeros(1), copied
    )
    assert all(np.isfinite(one).all() for one in every)
