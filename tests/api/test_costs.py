"""A measured point has what a mixer declares, what its program takes, and the gradients of the mixer."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest

from attnlab.api.costs import measured, mixer, passing, state_bytes
from attnlab.attention.view import CAUSAL
from attnlab.errors import UserError
from tests.tasks.tiny import noise


@pytest.mark.parametrize("name", ["multihead", pytest.param("recurrent", marks=pytest.mark.full)])
def test_a_point_has_what_is_declared_compiled_and_measured(name: str) -> None:
    module = mixer(name, {}, "causal", 8)
    point = measured(name, module, 16, rows=2)
    assert (point.name, point.length, point.why) == (name, 16, "")
    assert point.parameters == module.cost(16, 16, 8, 8).parameters
    assert point.flops == 2 * module.cost(16, 16, 8, 8).flops
    assert point.seconds > 0 and point.bytes > 2 * 2 * 16 * 8 * 4 and point.compiled_flops > 0
    assert state_bytes(module, 32) > point.state_bytes or name == "recurrent"
    too_large = measured(name, module, 16, memory=100.0)
    assert math.isnan(too_large.seconds) and too_large.why.startswith("its program takes 0.0 GB")


def test_gradients_are_those_of_the_mixer() -> None:
    module = mixer("multihead", {"heads": 2}, "causal", 8)
    x, g = (jax.random.normal(jax.random.key(n), (1, 5, 8)) for n in range(2))
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(2), x, CAUSAL, method="mix"))
    params = noise(shapes["params"], 0.5)
    slopes = jax.jit(passing(module, "causal", True))(params, x, g)

    def loss(params: object, x: jax.Array) -> jax.Array:
        return jnp.vdot(module.apply({"params": params}, x, CAUSAL, method="mix")[0], g)

    wanted = jax.jit(jax.grad(loss, (0, 1)))(params, x)
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(wanted), strict=True):
        assert jnp.allclose(one, other, atol=1e-5)
    both = jax.jit(passing(module, "bidirectional", False))(params, x, g)
    causal = jax.jit(passing(module, "causal", False))(params, x, g)
    assert jnp.allclose(both[:, -1], causal[:, -1], atol=1e-5)  # the last token sees all
    assert not jnp.allclose(both[:, 0], causal[:, 0], atol=1e-3)


def test_what_cannot_be_measured_is_one_line() -> None:
    with pytest.raises(UserError, match="mechanism=recurrent is causal only"):
        mixer("recurrent", {}, "bidirectional", 8)
    with pytest.raises(UserError, match="multihaed"):
        mixer("multihaed", {}, "causal", 8)
