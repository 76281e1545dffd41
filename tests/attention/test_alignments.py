"""The masked softmax: exact zeros, dead rows, shift invariance, large scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attnlab.attention.alignments import softmax


@pytest.fixture
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


@pytest.mark.quick
def test_equals_the_formula_and_masks_exactly(scores: np.ndarray) -> None:
    mask = np.random.default_rng(1).random((4, 6)) < 0.6
    mask[:, 0] = True
    weights = np.asarray(softmax(scores, mask))
    raised = np.exp(scores.astype(np.float64)) * mask
    np.testing.assert_allclose(weights, raised / raised.sum(-1, keepdims=True), atol=1e-7)
    assert (weights[~mask] == 0.0).all()
    np.testing.assert_allclose(softmax(scores, None), softmax(scores, np.ones_like(mask)), atol=1e-7)


def test_dead_row_is_zero_with_zero_gradient(scores: np.ndarray) -> None:
    mask = np.ones((4, 6), bool)
    mask[2] = False
    weights, pull = jax.vjp(lambda s: softmax(s, mask), jnp.asarray(scores))
    assert (weights[2] == 0.0).all()
    (grad,) = pull(jnp.ones_like(weights))
    assert np.isfinite(grad).all() and (grad[2] == 0.0).all()


def test_a_constant_changes_nothing_and_large_scores_stay_finite(scores: np.ndarray) -> None:
    mask = np.ones((4, 6), bool)
    np.testing.assert_allclose(softmax(scores + 50.0, mask), softmax(scores, mask), atol=1e-5)
    sharp = np.zeros((1, 6), np.float32)
    sharp[0, 3] = 1e4
    np.testing.assert_array_equal(softmax(sharp, np.ones((1, 6), bool))[0], np.eye(6)[3])


def test_low_precision_scores_are_normalised_in_float32(scores: np.ndarray) -> None:
    assert softmax(jnp.asarray(scores, jnp.bfloat16), None).dtype == jnp.float32


def test_gradients_in_float64(scores: np.ndarray) -> None:
    mask = np.array([True, True, False, True, True, False])
    check_grads(lambda s: softmax(s, mask), (jnp.asarray(scores),), order=1, modes=["rev"], atol=2e-3, rtol=2e-3)
