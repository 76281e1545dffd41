"""Costs by hand; a measured point has them, what its program takes, and the gradients of the mixer."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from attnlab.api.costs import Cost, Direction, cost, measured, mixer, passing, state_bytes
from attnlab.attention.view import CAUSAL
from tests.tasks.tiny import noise


@pytest.mark.parametrize("name", ["multihead", pytest.param("recurrent", marks=pytest.mark.full)])
def test_a_point_has_what_is_declared_compiled_and_measured(name: str) -> None:
    module = mixer(name, {}, "causal", 8)
    point = measured(name, module, 16, rows=2)
    assert (point.name, point.length, point.why) == (name, 16, "")
    counted = cost(module, 16, rows=2)
    assert counted == (point.parameters, point.flops, point.state_bytes)
    assert counted.flops == pytest.approx(2 * cost(module, 16).flops, rel=0.05)
    assert point.seconds > 0 and point.bytes > 2 * 2 * 16 * 8 * 4 and point.compiled_flops > 0
    assert state_bytes(module, 32) > point.state_bytes or name == "recurrent"
    too_large = measured(name, module, 16, memory=100.0)
    assert math.isnan(too_large.seconds) and too_large.why.startswith("its program takes 0.0 GB")


T, D, H = 16, 8, 2
PRODUCTS = 4 * 2 * T * D**2 + 2 * 2 * T**2 * D  # of four projections; of the scores and the sums
BY_HAND: list[tuple[str, dict[str, Any], Direction, Cost]] = [
    (
        "multihead",  # a softmax; the scale of a query; rows that see nothing
        {"heads": H},
        "bidirectional",
        Cost(4 * D**2, PRODUCTS + H * T * (4 * T - 2) + T * D + T * H, T * (2 * 4 * D + 1) + 4),
    ),
    # four gates from input and state; beside the products less than a fifth
    ("recurrent", {}, "causal", Cost(2 * 4 * D**2 + 4 * D, 1.1 * T * 16 * D**2, 2 * 4 * D)),
    # twice the channels, of which one half gates the other, with gains and biases; the last two
    # inputs are kept
    (
        "convolution",
        {"kernel": 3},
        "causal",
        Cost(6 * D**2 + 4 * D, 1.1 * T * 12 * D**2, 2 * 4 * D),
    ),
    # two gates from a token and the mean before it, whose running sum is kept
    ("average", {"hidden": 0}, "causal", Cost(4 * D**2 + 2 * D, 1.2 * T * 8 * D**2, 4 * (D + 1))),
    # keys and values of 4 landmarks, of which each head has its own; which tokens are real
    (
        "linformer",
        {"heads": H, "rank": 4, "length": T},
        "bidirectional",
        Cost(4 * D**2 + H * 4 * T, 4 * 2 * T * D * (D + 4), 4 * 2 * 4 * D + T + 4),
    ),
]


@pytest.mark.parametrize(("name", "fields", "direction", "wanted"), BY_HAND)
def test_costs_by_hand(
    name: str, fields: dict[str, Any], direction: Direction, wanted: Cost
) -> None:
    found = cost(mixer(name, fields, direction, D), T, direction=direction)
    near = pytest.approx(wanted.flops, rel=1e-9 if name == "multihead" else 0.1)
    assert found == wanted._replace(flops=near)


def test_every_pair_is_counted_whatever_the_kernel_and_however_deep_it_is() -> None:
    """`auto` runs long looks in blocks, in loops that XLA counts once."""
    fields: dict[str, Any] = {"heads": H}
    deep = {"steps": 1, "looks": {"name": "multihead", **fields}}
    for module in (mixer("multihead", fields, "causal", D), mixer("multi_step", deep, "causal", D)):
        assert cost(module, 512).flops > 2 * 2 * 512**2 * D + 4 * H * 512**2


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
