"""Position schemes: the formula of each, hooks that hand back what they got, and any length in any precision."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.positions.sinusoidal import Sinusoidal


def table(positions: np.ndarray, width: int, base: float = 10000.0) -> np.ndarray:
    return np.asarray(Sinusoidal(base=base).apply({}, positions, width, method="table"))


@pytest.mark.quick
@pytest.mark.parametrize(("width", "base"), [(8, 10000.0), (7, 10000.0), (1, 10000.0), (6, 100.0)])
def test_sinusoidal_is_the_formula(width: int, base: float) -> None:
    """sin and cos in turn, frequency base^(-2i/d) with the whole width d, also where an odd width drops the last cosine."""
    found = table(np.arange(50), width, base)
    assert found.shape == (50, width)
    for p in range(50):
        for column in range(width):
            angle = p / base ** (2 * (column // 2) / width)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert found[p, column] == pytest.approx(expected, abs=5e-6)
    assert found[0].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0][:width]


def test_a_shift_is_a_rotation() -> None:
    """PE(p).PE(p+k) depends on k alone, and each (sin, cos) pair of PE(p+k) is the pair of PE(p) turned by k times its frequency."""
    found = table(np.arange(64), 16).astype(np.float64)
    for k in (1, 5, 20):
        products = (found[:-k] * found[k:]).sum(axis=1)
        np.testing.assert_allclose(products, products[0], atol=1e-4)
        for i in range(8):
            angle = k / 10000 ** (2 * i / 16)
            sine, cosine = found[:-k, 2 * i], found[:-k, 2 * i + 1]
            np.testing.assert_allclose(found[k:, 2 * i], sine * math.cos(angle) + cosine * math.sin(angle), atol=1e-5)


def test_embedding_adds_the_table_at_the_positions_asked_for() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    scheme = Sinusoidal()
    found = scheme.apply({}, x, jnp.array([4, 0, 9]), method="embed")
    np.testing.assert_allclose(found, x + table(np.array([4, 0, 9]), 6), atol=1e-6)
    by_row = scheme.apply({}, x, jnp.array([[4, 0, 9], [1, 2, 3]]), method="embed")
    np.testing.assert_allclose(by_row[1], x[1] + table(np.array([1, 2, 3]), 6), atol=1e-6)
    whole = scheme.apply({}, x, jnp.arange(3), method="embed")
    one = scheme.apply({}, x[:, 2:], jnp.array([2]), method="embed")
    np.testing.assert_array_equal(whole[:, 2:], one)  # as in decoding, one position at a time


def test_bfloat16_tables_are_built_in_float32() -> None:
    """At position 9999 a bfloat16 angle would be off by whole turns."""
    x = jnp.zeros((1, 10_000, 8), jnp.bfloat16)
    found = Sinusoidal().apply({}, x, jnp.arange(10_000), method="embed")
    assert found.dtype == jnp.bfloat16
    angle = np.arange(10_000)[:, None] / 10000.0 ** (np.arange(0, 8, 2) / 8)
    expected = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(10_000, 8)
    assert np.abs(np.asarray(found[0], np.float32) - expected).max() < 6e-3


@pytest.mark.quick
@pytest.mark.parametrize("name", POSITIONS.names())
def test_hooks_that_a_scheme_does_not_name_change_nothing(name: str) -> None:
    scheme = POSITIONS.resolve(name)()
    assert scheme.hooks <= {"embedding", "query_key", "score"}
    x, heads = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32), np.ones((2, 2, 3, 4), np.float32)
    calls = {"embedding": ("embed", x), "query_key": ("rotate", heads)}
    for hook, (method, argument) in calls.items():
        found = scheme.apply({}, argument, jnp.arange(3), method=method)
        assert (np.asarray(found) == argument).all() == (hook not in scheme.hooks)
    assert (scheme.apply({}, jnp.arange(3), jnp.arange(3), method="bias") is None) == ("score" not in scheme.hooks)


def test_none_is_the_base_of_all() -> None:
    assert POSITIONS.resolve("none") is PositionScheme
    assert all(issubclass(POSITIONS.resolve(name), PositionScheme) for name in POSITIONS.names())
