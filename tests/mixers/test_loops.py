"""Loops over time. That of a system that looks at every step shares parameters and stacks what steps
leave; that which writes a tape has the gradients of the same loop differentiated by JAX. Systems that use
them are tested with theirs.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import LOSSES, MAPS, Memory
from attnlab.mixers.loops import over_time, taped

B, T, N, H, BEFORE = 2, 5, 6, 3, 2


class Looker(nn.Module):
    """Adds to its state what a step is given, through one matrix and dropout, and leaves a map and
    a loss of one query aside.
    """

    def setup(self) -> None:
        self.raised = nn.Dense(H)
        self.drop = nn.Dropout(0.5)

    def __call__(self, x: jax.Array, constant: jax.Array) -> tuple[Any, Any]:
        def step(
            module: Looker, state: jax.Array, here: jax.Array, constant: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            state = state + module.drop(
                module.raised(here) + constant, deterministic=not module.has_rng("dropout")
            )
            module.sow(MAPS, "weights", jnp.broadcast_to(state[:, None, None, :1], (B, 1, 1, N)))
            module.sow(LOSSES, "looks", state[:, :1])
            return state, state

        return over_time(step)(self, jnp.zeros((B, H)), x, constant)  # type: ignore[no-any-return]


@pytest.mark.quick
def test_parameters_are_shared_looks_stacked_and_draws_are_each_steps_own() -> None:
    x, constant = np.ones((B, T, 4), np.float32), np.arange(H, dtype=np.float32)

    @jax.jit
    def found(key: jax.Array) -> Any:
        variables = Looker().init(key, x, constant)
        variables = {"params": variables["params"]}
        looked = Looker().apply(variables, x, constant, mutable=[MAPS, LOSSES])
        dropped = Looker().apply(variables, x, constant, rngs={"dropout": key})
        return variables["params"], looked, dropped[1]

    params, ((last, states), aside), dropped = jax.device_get(found(jax.random.key(0)))
    assert jax.tree.map(np.shape, params) == {"raised": {"kernel": (4, H), "bias": (H,)}}
    first = x[0, 0] @ params["raised"]["kernel"] + params["raised"]["bias"] + constant
    np.testing.assert_allclose(states[0], first * np.arange(1, T + 1)[:, None], rtol=1e-5)
    np.testing.assert_array_equal(last, states[:, -1])
    weights = aside[MAPS]["weights"][0]
    assert weights.shape == (B, 1, T, 1, N) and aside[LOSSES]["looks"][0].shape == (B, T, 1)
    np.testing.assert_array_equal(weights[0, 0, :, 0, 0], states[0, :, 0])
    zeros = np.diff(dropped, axis=1, prepend=0)[0] == 0
    assert 0 < zeros.sum() < zeros.size and not (zeros == zeros[:1]).all()


@flax.struct.dataclass
class Tape(Memory):
    """slots [B,1,N,H]."""

    slots: jax.Array


def step(params: Any, state: Any, tape: Any, inputs: Any, constant: Any) -> tuple[Any, Any]:
    """An attention by products over what is valid; `inputs` bring numbers, a mask and a random key,
    the state a count.
    """
    x, real, key = inputs
    scores = jnp.einsum("bh,bnh->bn", state["h"] @ params["look"], tape.slots[:, 0])
    scores = jnp.where(tape.valid, scores, -1e9)
    result = jnp.einsum("bn,bnh->bh", jax.nn.softmax(scores), tape.slots[:, 0])
    kept = jax.random.bernoulli(key, 0.7, result.shape)
    bias = constant["bias"] * (1 + constant["number"])
    h = jnp.tanh(x + jnp.where(kept, result, 0.0) @ params["past"] + bias)
    h = jnp.where(real[:, None], h, state["h"])
    tape = tape.appended(real[:, None], slots=h[:, None, None])
    return {"h": h, "count": state["count"] + 1}, tape


def plain(params: Any, state: Any, tape: Any, inputs: Any, constant: Any) -> tuple[Any, Any, Any]:
    """`taped`, as JAX differentiates it."""

    def body(carry: Any, here: Any) -> tuple[Any, Any]:
        following = step(params, *carry, here, constant)
        return following, following[0]

    (last, tape), states = jax.lax.scan(body, (state, tape), inputs)
    return states, last, tape


def numbers(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


REALS = {
    "params": {"look": numbers(H, H, seed=1), "past": numbers(H, H, seed=2)},
    "h": numbers(B, H, seed=3),
    "slots": np.pad(numbers(B, 1, BEFORE, H, seed=4), ((0, 0), (0, 0), (0, T), (0, 0))),
    "x": numbers(T, B, H, seed=5),
    "bias": numbers(H, seed=6),
}
REAL = np.arange(T)[:, None] < np.array([5, 3])


def total(reals: Any, loop: Any) -> jax.Array:
    """Something that every output has a part in."""
    valid = np.pad(np.array([[True, True], [False, True]]), ((0, 0), (0, T)))
    tape = Tape(jnp.asarray(valid), jnp.asarray(BEFORE), jnp.asarray(reals["slots"]))
    inputs = reals["x"], jnp.asarray(REAL), jax.random.split(jax.random.key(0), T)
    state = {"h": reals["h"], "count": jnp.zeros((), jnp.int32)}
    constant = {"bias": reals["bias"], "number": jnp.asarray(2)}
    states, last, tape = loop(reals["params"], state, tape, inputs, constant)
    of_states = (states["h"] * numbers(T, B, H, seed=7)).sum()
    return of_states + (last["h"] ** 2).sum() + (tape.slots**2).sum() + 0.0 * last["count"]


@pytest.mark.quick
def test_values_and_all_gradients_are_those_of_the_plain_loop() -> None:
    actual, expected = (
        jax.jit(jax.value_and_grad(lambda reals, loop=loop: total(reals, loop)))(REALS)
        for loop in (lambda *given: taped(step, *given), plain)
    )
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6)
    pairs = zip(jax.tree.leaves_with_path(actual[1]), jax.tree.leaves(expected[1]), strict=True)
    for (path, one), other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-5, err_msg=jax.tree_util.keystr(path))
        assert np.abs(other).max() > 1e-2


def test_forward_mode_is_refused() -> None:
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda reals: total(reals, lambda *given: taped(step, *given)), (REALS,), (REALS,))
