"""The shared parts of a decoding step rank, repeat and limit rows as they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from attnlab.decoding.rows import largest
from attnlab.decoding.steps import by_row, length_limits, repeat_rows, take_rows


@pytest.mark.parametrize(("width", "k"), [(7, 3), (641, 5), (640, 5), (999, 1)])
@pytest.mark.parametrize("levels", [5, 10**6])
def test_largest_equals_top_k(width: int, k: int, levels: int) -> None:
    """Also among many ties, at widths that are no multiple of the chunk, and where most entries are
    -inf.
    """
    rng = np.random.default_rng(width)
    values = rng.integers(0, levels, size=(9, width)).astype(np.float32)
    values[3], values[4, 2:] = -np.inf, -np.inf
    values[5] = 1.0
    # a chunk in the middle ranks first, though ties of its others come later
    values[6:, width // 2] = 2.0 * levels
    both_ways = jax.jit(lambda values: (largest(values, k), lax.top_k(values, k)))
    (actual, places), (expected, ids) = both_ways(values)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(places, ids)


def test_rows_are_repeated_one_by_one() -> None:
    """Copies of row b lie together; scalars stay; a leading axis that is not the sentences is
    refused.
    """
    tree = {"a": jnp.array([[1], [2]]), "t": jnp.int32(7)}
    repeated = repeat_rows(tree, 2, 3)
    assert repeated["a"][:, 0].tolist() == [1, 1, 1, 2, 2, 2] and repeated["t"] == 7
    rows = take_rows(repeated, jnp.array([3, 0, 0, 1, 5, 2]))
    assert rows["a"][:, 0].tolist() == [2, 1, 1, 1, 2, 1] and rows["t"] == 7
    with pytest.raises(ValueError, match=r"leading axis 2 .*\(4,\)"):
        repeat_rows({"a": jnp.zeros(4)}, 2, 3)


def test_numbers_that_rows_shared_become_one_for_each() -> None:
    """So that rows can be taken apart and put together; arrays stay as they are."""
    tree = {"a": jnp.array([[1], [2]]), "t": jnp.int32(7), "n": np.int32(3)}
    spread = by_row(tree, 2)
    assert spread["t"].tolist() == [7, 7] and spread["n"].tolist() == [3, 3]
    assert spread["a"] is tree["a"] and by_row(spread, 2)["t"] is spread["t"]


def test_limits_lie_within_the_buffer() -> None:
    assert length_limits(jnp.array([0, 3, 99]), 3, 5).tolist() == [1, 3, 5]
    assert length_limits(None, 2, 5).tolist() == [5, 5]
