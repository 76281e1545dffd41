"""What is said of RCTM I beyond its formula: sentences of any length are read whole, and they are the
only way from source to target.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.systems.recurrent.rctm import SentenceModel
from attnlab.training.updates import first_params
from tests.systems.checks import SPECS, batch, make, parameters, prepared
from tests.systems.tiny import seldom

SPEC = SPECS["rctm"]
WIDTH, WIDEST = 3, 3


@functools.cache
def sentence_model() -> Any:
    """`(columns, valid) -> [B,3]` of a sentence model with windows of 2 and 3, compiled once for
    each length.
    """
    module = SentenceModel(WIDTH, WIDEST)
    given = jnp.zeros((1, 4, WIDTH)), jnp.ones((1, 4), bool)
    params = first_params(module.init, jax.random.key(0), *given)
    return jax.jit(functools.partial(module.apply, params))


def words(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, length, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("length", seldom((2, 3, 5, 6, 7, 9, 10), 3, 7))
def test_every_length_is_read_whole_in_its_order_and_padding_not_at_all(length: int) -> None:
    """Also lengths beyond the 6 that two windows of 2 and 3 are laid out for."""
    x = words(length)
    padded = np.concatenate([x, 1e3 * words(12 - length, 1)], axis=1)
    valid = np.arange(12)[None] < length
    actual = sentence_model()(padded, valid)
    np.testing.assert_allclose(actual, sentence_model()(x, np.ones((1, length), bool)), atol=1e-6)
    reverse = np.concatenate([x[:, ::-1], padded[:, length:]], axis=1)
    assert np.abs(sentence_model()(reverse, valid) - actual).max() > 1e-4
    slope = np.abs(jax.jacrev(lambda padded: sentence_model()(padded, valid)[0])(padded))[:, 0]
    assert (slope[:, length:] == 0.0).all()
    assert (slope.max(axis=(0, 2))[:length] > 1e-7).all()


@pytest.mark.quick
def test_without_the_sentence_it_is_a_language_model_of_the_target() -> None:
    system, (source, target) = make(SPEC), batch()
    params = parameters(system)
    params["of_sentence"] = {"kernel": np.zeros_like(params["of_sentence"]["kernel"])}
    apply = jax.jit(lambda source: system.apply({"params": params}, source, target))
    np.testing.assert_array_equal(apply(source), apply(np.flip(source, axis=0)))
    call, _ = prepared(SPEC)
    assert np.abs(call(source, target) - call(np.flip(source, axis=0), target)).max() > 1e-3
