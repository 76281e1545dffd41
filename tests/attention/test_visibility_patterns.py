"""What the published patterns promise beside their pairs: conventions of windows, BigBird's draw."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.view import View
from attnlab.attention.visibility import Causal, Rule, Window, bigbird
from attnlab.attention.visibility.random_blocks import draw
from tests.attention.visibility_oracles import T


def full(rule: Rule) -> np.ndarray:
    """[T,T] of a rule that knows neither rows nor heads."""
    return np.broadcast_to(rule.allows(jnp.arange(T), jnp.arange(T)), (1, 1, T, T))[0, 0]


@pytest.mark.parametrize("length", [1, 2, T])
def test_bigbird_with_all_blocks_drawn_is_full_attention(length: int) -> None:
    look = jax.jit(
        lambda: [
            View(bigbird(length, 2, block, random=length)).mask(length, length, length)
            for block in (1, 2, 4, 20)
        ]
    )
    for result in look():
        np.testing.assert_array_equal(result, np.ones((1, 2, length, length), bool))


def test_windows_are_counted_as_jax_counts_them() -> None:
    zeros, values = jnp.zeros((1, T, 1, T)), jnp.eye(T)[None, :, None]
    for rule, size in ((Causal() & Window(3), (2, 0)), (Window(3), (2, 2))):
        weights = jax.nn.dot_product_attention(zeros, zeros, values, local_window_size=size)[
            0, :, 0
        ]
        np.testing.assert_array_equal(full(rule), weights > 0)


# BigBird's draw


@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_random_blocks_are_as_many_as_asked_and_never_seen_anyway(count: int) -> None:
    blocks = draw(8, count, 3, 5)
    for head, row in itertools.product(range(3), range(8)):
        free = [column for column in range(1, 7) if abs(column - row) > 1] if 0 < row < 7 else []
        columns = np.flatnonzero(blocks[head, row])
        assert len(columns) == min(count, len(free)) and set(columns) <= set(free)


def test_the_draw_is_fixed_by_its_seed() -> None:
    first = draw(12, 3, 2, 5).copy()
    draw.cache_clear()
    np.testing.assert_array_equal(draw(12, 3, 2, 5), first)
    assert (draw(12, 3, 2, 6) != first).any() and (first[0] != first[1]).any()
    assert bigbird(50, 2, 4, seed=1) == bigbird(50, 2, 4, seed=1) != bigbird(50, 2, 4, seed=2)
