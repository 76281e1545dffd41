"""Counting the operations of matrix products."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.step_profile import matmul_operations


def count(function: object, *shapes: tuple[int, ...]) -> float:
    """Operations of a function of arrays of these shapes."""
    return matmul_operations(jax.make_jaxpr(function)(*(jnp.ones(shape) for shape in shapes)).jaxpr)  # type: ignore[arg-type]


def test_a_product_is_2mnk_and_its_gradient_two_more() -> None:
    product = lambda a, b: jnp.tanh(a @ b) + 1.0
    batched = lambda a, b: jnp.einsum("bij,bjk->bik", a, b)
    slopes = jax.grad(lambda a, b: jnp.tanh(a @ b).sum(), (0, 1))
    assert count(product, (3, 4), (4, 5)) == 2 * 3 * 4 * 5
    assert count(batched, (7, 3, 4), (7, 4, 5)) == 7 * 2 * 3 * 4 * 5
    assert count(slopes, (3, 4), (4, 5)) == 3 * 2 * 3 * 4 * 5


def test_products_in_loops_and_called_functions_count_as_often_as_they_run() -> None:
    def loop(a: jax.Array) -> jax.Array:
        return jax.lax.scan(
            lambda carry, _: (jax.jit(jnp.matmul)(carry, a), None), a, None, length=6
        )[0]

    assert count(loop, (3, 3)) == 6 * 2 * 27
    assert count(jax.checkpoint(loop), (3, 3)) == 6 * 2 * 27
    with pytest.raises(ValueError, match="while"):
        count(lambda a: jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ a, a), (3, 3))
