"""The work of programs against hand counts, and against unrolled programs."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from attnlab.analysis.work import flops, work

ROWS, WIDTH, LENGTH = 32, 64, 7
X, W = jnp.ones((ROWS, WIDTH)), jnp.ones((WIDTH, WIDTH))
ONE = 2 * ROWS * WIDTH * WIDTH  # a multiplication and an addition for each entry of a product


def near(count: float) -> Any:
    """Loops also count their passes and add up gradients; that is small beside the products."""
    return pytest.approx(count, rel=0.02)


def scanned(x: jax.Array, w: jax.Array, length: int = LENGTH, unroll: int = 1) -> jax.Array:
    return jax.lax.scan(lambda x, _: (x @ w, None), x, length=length, unroll=unroll)[0]


@pytest.mark.quick
def test_a_product_in_a_loop_counts_as_often_as_the_loop_runs() -> None:
    assert flops(lambda x, w: x @ w, X, W) == ONE
    assert flops(scanned, X, W) == near(LENGTH * ONE)
    # shapes are enough
    assert flops(scanned, jax.ShapeDtypeStruct(X.shape, X.dtype), W) == near(LENGTH * ONE)


def test_loops_in_loops_multiply() -> None:
    def twice(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (scanned(carry @ w, w, 5), None), x, length=3)[0] @ w

    assert flops(twice, X, W) == near((3 * (1 + 5) + 1) * ONE)


@pytest.mark.parametrize("unroll", [0, 2, 3, LENGTH, LENGTH + 1])
def test_unrolled_loops_count_the_same(unroll: int) -> None:
    assert flops(lambda x, w: scanned(x, w, unroll=unroll), X, W) == near(LENGTH * ONE)


def test_a_gradient_costs_two_more_products_a_pass() -> None:
    slope = jax.grad(lambda w, x: scanned(x, w).sum())
    assert flops(slope, W, X) == near(3 * LENGTH * ONE)


def test_loops_are_found_inside_other_programs() -> None:
    for wrap in (jax.jit, jax.checkpoint):
        assert flops(wrap(scanned), X, W) == near(LENGTH * ONE)
    rows = X.reshape(4, ROWS // 4, WIDTH)
    assert flops(jax.vmap(scanned, in_axes=(0, None)), rows, W) == near(LENGTH * ONE)


def test_transcendental_operations_are_counted_apart_and_as_often_as_loops_run() -> None:
    """By hand: one for each element of an exponential, a tanh, a logarithm, a root; additions and
    products are none.
    """
    size = ROWS * WIDTH

    def body(carry: jax.Array, _: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(carry) + jnp.exp(carry), jnp.log(carry[0])

    def once(x: jax.Array) -> jax.Array:
        return jax.lax.rsqrt(jnp.exp(x) * 2.0 + x)

    assert work(once, X).transcendentals == 2 * size and work(once, X).flops == 2 * size
    assert work(lambda x, w: x @ w + x, X, W).transcendentals == 0
    looped = work(lambda x: jax.lax.scan(body, jnp.exp(x), length=LENGTH), X)
    assert looped.transcendentals == size + LENGTH * (2 * size + WIDTH) and looped.loops == 0


def test_loops_of_unknown_length_are_counted_once_and_said() -> None:
    def until(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda one: one.sum() < 100, jnp.exp, x)

    assert (work(until, X).loops, work(until, X).transcendentals) == (1, X.size)
    known = work(lambda x: jax.lax.fori_loop(0, 4, lambda _, one: one + 1, x), X)
    one_side = work(lambda x: jax.lax.cond(x.sum() > 0, jax.jit(until), lambda one: one, x), X)
    assert (known.loops, one_side.loops) == (0, 1)


def test_a_branch_counts_by_its_dearest_side() -> None:
    def either(choice: jax.Array, x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.cond(choice, lambda: scanned(x, w, 9), lambda: scanned(x, w, 2))

    assert flops(either, jnp.array(True), X, W) == near(9 * ONE)


def test_running_sums_are_said_to_be_counted_too_dearly() -> None:
    """XLA takes n - 1 for each number of a sum, a program 2; in a loop as often as it runs."""
    found = work(lambda x: jnp.cumsum(x, axis=1), X)
    assert (found.flops, found.sums) == (X.size * (WIDTH - 1), X.size * (WIDTH - 3))
    looped = work(lambda x: jax.lax.map(lambda row: jax.lax.cummax(row), x), X)
    assert looped.sums == X.size * (WIDTH - 3) and work(jnp.sum, X).sums == 0
