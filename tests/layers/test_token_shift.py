"""The token before is the last real one, over padding and from piece to piece."""

import jax
import numpy as np
import pytest

from attnlab.layers.token_shift import token_before


@pytest.mark.quick
def test_the_token_before_is_the_last_real_one() -> None:
    rng = np.random.default_rng(0)
    x, valid = rng.normal(size=(3, 6, 2)).astype(np.float32), rng.random((3, 6)) < 0.6
    valid[2] = False
    first = rng.normal(size=(3, 1, 2)).astype(np.float32)
    expected, last = np.zeros_like(x), first[:, 0].copy()
    for t in range(6):
        expected[:, t] = last
        last = np.where(valid[:, t, None], x[:, t], last)
    actual, kept = jax.jit(token_before)(x, first, valid)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(kept[:, 0], last)
    actual, kept = jax.jit(token_before)(x, first)
    np.testing.assert_array_equal(actual, np.concatenate([first, x[:, :-1]], axis=1))
    np.testing.assert_array_equal(kept, x[:, -1:])
