"""The loop that writes a tape, against the same loop differentiated by JAX; systems that use it are
tested with theirs.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import Memory
from attnlab.mixers.tape import taped

B, T, H, BEFORE = 2, 5, 3, 2


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
