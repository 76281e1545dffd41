"""What the figures of mixers with a state are figures of."""

import jax
import numpy as np
import pytest

from benchmarks import states


def test_the_products_are_those_of_one_chunk() -> None:
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 64, 4)).astype(np.float32)
    whole = (q @ k.swapaxes(-1, -2)) @ v
    np.testing.assert_allclose(states.products(q, k, v), 2 * whole, rtol=1e-3, atol=1e-3)
    linear = jax.jit(states.recurrence("linear"))(q, k, v)
    np.testing.assert_allclose(linear, np.tril(q @ k.swapaxes(-1, -2)) @ v, atol=1e-4)


@pytest.mark.full
def test_a_step_goes_on_from_what_was_read() -> None:
    program, given = states.steps("linear", 3)
    assert program(*given).shape == (4, 1, 256) and (np.asarray(given[2].read) == 3).all()
