"""Parameters without a gradient are found in the program as in gradients that are computed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.training.gradients import idle_paths

PARAMS = {
    name: jnp.full((3, 3), 0.5) + 0.1 * jnp.arange(3) for name in ("used", "stopped", "unused")
}
X = jnp.linspace(0.1, 1.0, 6).reshape(2, 3)


def plain(params: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["used"] + x @ jax.lax.stop_gradient(params["stopped"])).sum()


def looped(params: Any, x: jax.Array) -> jax.Array:
    """The parameter without a gradient is read in every pass, beside the one with one."""

    def body(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = jnp.tanh(carry @ params["used"] + row @ jnp.floor(params["stopped"]))
        return carry, carry.sum()

    return jax.lax.scan(body, x[0], x)[1].sum()


def branched(params: Any, x: jax.Array) -> jax.Array:
    def other(x: jax.Array) -> jax.Array:
        return x @ (params["stopped"] > 0).astype(float)

    return jax.lax.cond(x.sum() > 0, lambda x: x @ params["used"], other, x).sum()


def chosen(params: Any, x: jax.Array) -> jax.Array:
    """Reached through an index only, and by a product with 0."""
    row = params["used"][jnp.argmax(params["stopped"][0])]
    return row.sum() * x.sum() + 0.0 * params["unused"].sum()


def own_derivative(params: Any, x: jax.Array) -> jax.Array:
    @jax.custom_vjp
    def product(x: jax.Array, w: jax.Array, other: jax.Array) -> jax.Array:
        return x @ w + other.sum()

    def backward(kept: Any, change: jax.Array) -> Any:
        x, w = kept
        return change @ w.T, x.T @ change, jnp.zeros((3, 3))

    product.defvjp(lambda x, w, other: (product(x, w, other), (x, w)), backward)
    return product(x, params["used"], params["stopped"]).sum()


def by_vmap(params: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda row: plain(params, row[None]))(x).sum()


@pytest.mark.parametrize(
    "wrap", [lambda f: f, jax.jit, jax.checkpoint], ids=["as it is", "jit", "remat"]
)
@pytest.mark.parametrize("loss", [plain, looped, branched, chosen, own_derivative, by_vmap])
def test_what_has_no_gradient_is_found_in_the_program(loss: Any, wrap: Any) -> None:
    zero = [name for name, grad in sorted(jax.grad(loss)(PARAMS, X).items()) if not np.any(grad)]
    assert idle_paths(wrap(loss), PARAMS, X) == (*zero,) == ("stopped", "unused")


def test_shapes_are_enough_and_paths_are_whole() -> None:
    nested = {"layer": PARAMS, "bias": jnp.ones(3)}
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (nested, X))
    actual = idle_paths(lambda params, x: plain(params["layer"], x) + params["bias"].sum(), *shapes)
    assert actual == ("layer/stopped", "layer/unused")


def test_a_gradient_that_is_zero_for_this_data_only_is_one() -> None:
    used = {"used": PARAMS["used"]}
    assert idle_paths(lambda params, x: jax.nn.relu(x @ params["used"] - 1e6).sum(), used, X) == ()
    in_a_loop = jax.jit(
        lambda params, x: jax.lax.fori_loop(0, 3, lambda _, y: y @ params["used"], x).sum()
    )
    assert idle_paths(in_a_loop, used, X) == ()
