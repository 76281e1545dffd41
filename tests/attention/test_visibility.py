"""Visibility against loops over every (query, key) pair."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.visibility import CAUSAL, EVERYTHING, Visibility


def allowed(queries: int, keys: int, length: int, *, causal: bool, window: int | None) -> np.ndarray:
    mask = np.zeros((queries, keys), bool)
    for q, k in itertools.product(range(queries), range(keys)):
        position = length - queries + q
        mask[q, k] = (not causal or k <= position) and (window is None or abs(position - k) < window)
    return mask


@pytest.mark.quick
@pytest.mark.parametrize(("queries", "keys", "length"), [(5, 5, 5), (1, 8, 3), (3, 8, 6), (2, 7, 7)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_causal_and_window_equal_loops(queries: int, keys: int, length: int, causal: bool, window: int | None) -> None:
    mask = Visibility(causal=causal, window=window).mask(queries, keys, jnp.asarray(length))
    expected = allowed(queries, keys, length, causal=causal, window=window)
    if mask is None:
        assert expected.all()
    else:
        np.testing.assert_array_equal(np.broadcast_to(mask, (1, 1, queries, keys))[0, 0], expected)


def test_everything_needs_no_mask() -> None:
    assert EVERYTHING.mask(3, 4, 4) is None


def test_prefix_is_seen_by_all_queries() -> None:
    mask = Visibility(causal=True, prefix=jnp.array([0, 3])).mask(4, 4, 4)
    assert mask is not None
    np.testing.assert_array_equal(mask[0, 0], np.tril(np.ones((4, 4), bool)))
    expected = np.tril(np.ones((4, 4), bool))
    expected[:, :3] = True
    np.testing.assert_array_equal(mask[1, 0], expected)


def test_segments_see_only_themselves_and_rules_combine() -> None:
    ids = jnp.array([[0, 0, 1, 1]])
    mask = Visibility(causal=True, segments=(ids, ids)).mask(4, 4, 4)
    assert mask is not None
    expected = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]], bool)
    np.testing.assert_array_equal(mask[0, 0], expected)


def test_dense_part_is_one_rule_among_others() -> None:
    dense = jnp.array([[[[True, False, True]] * 3]])
    mask = Visibility(causal=True, dense=dense).mask(3, 3, 3)
    np.testing.assert_array_equal(mask[0, 0], np.tril(np.ones((3, 3), bool)) & np.array([True, False, True]))  # type: ignore[index]
    assert CAUSAL.dense is None
