"""What is said of the pointer-generator beyond its log-probabilities: coverage, its loss, the
mixture, and what does not fit it.
"""

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.systems.recurrent.pointer_generator import mixture, scattered
from tests.systems.checks import SPECS, VOCABULARY, batch, make, parameters, prepared
from tests.systems.oracles.recurrent import copying_looks
from tests.systems.tiny import wide

SPEC = SPECS["pointer_generator"]


def test_coverage_its_loss_and_the_weights_are_the_papers() -> None:
    call, system = prepared(SPEC)
    (sources, targets), params = batch(), wide(parameters(system))
    log_probs, left = call(sources, targets, mutable=[LOSSES, MAPS])
    (losses,) = left[LOSSES]["looks"]
    assert set(losses) == {"coverage"}
    looks = np.asarray(system.alignment(system.maps(left[MAPS])))
    overlaps = losses["coverage"].reshape(targets.shape)
    for row, source in enumerate(sources):
        _, weights, again = copying_looks(params, SPEC, source[source != 0], targets[row])
        np.testing.assert_allclose(looks[row, :, source != 0].T, weights, atol=1e-6)
        assert not looks[row, :, source == 0].any()
        np.testing.assert_allclose(overlaps[row], again, atol=1e-6)
        assert again[0] == 0.0 and (again[1:] > 0.05).all() and (again <= 1.0 + 1e-9).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, atol=2e-6)


def test_of_several_heads_the_mean_is_copied() -> None:
    """With the gate shut, of a mechanism with two heads."""
    system = make({**SPEC, "attention": {"name": "multihead", "heads": 2}, "coverage": "none"})
    (source, target), params = batch(), parameters(system)
    shut = {**params, "gate": {"kernel": 0 * params["gate"]["kernel"], "bias": np.full(1, -60.0)}}
    apply = jax.jit(lambda params: system.apply({"params": params}, source, target, mutable=[MAPS]))
    log_probs, collected = apply(shut)
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
