"""The GRU layers of encoders and decoders compute the equations of Bahdanau et al. 2015, appendix
A.1.1, and of Cho et al. 2014, appendix A.1.2; padding reaches nothing.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.recurrent import BidirectionalGRU, ContextGRUCell, GRUCell, GRULayer
from tests.rounding import assert_close

H, E = 5, 3
LENGTHS = (6, 3, 1)
VALID = np.arange(6)[None] < np.array(LENGTHS)[:, None]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(cell: Any, state: np.ndarray, contribution: np.ndarray) -> np.ndarray:
    """h' = (1 - z) h + z tanh(p_n + (r h) U_n) in float64."""
    gates, candidate = (np.asarray(cell[name], np.float64) for name in ("gates", "candidate"))
    p, h = contribution.astype(np.float64), state.astype(np.float64)
    r = sigmoid(p[:, :H] + h @ gates[:, :H])
    z = sigmoid(p[:, H : 2 * H] + h @ gates[:, H:])
    return (1 - z) * h + z * np.tanh(p[:, 2 * H :] + (r * h) @ candidate)


def drawn(module: Any) -> Any:
    """Parameters of a layer, N(0, 1)."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), draw(3, 6, E), VALID)["params"]
    leaves, tree = jax.tree.flatten(shapes)
    return jax.tree.unflatten(
        tree, [draw(*leaf.shape, seed=number) for number, leaf in enumerate(leaves)]
    )


def test_recurrent_matrices_start_orthogonal() -> None:
    """Each of the blocks side by side, and no two alike."""
    given = [np.zeros((1, size), np.float32) for size in (8, 24, 24)]
    for cell, count in ((GRUCell(8), 2), (ContextGRUCell(8), 3)):
        for matrix in jax.jit(cell.init)(jax.random.key(0), *given[:count])["params"].values():
            blocks = np.split(np.asarray(matrix), matrix.shape[1] // 8, axis=1)
            for block in blocks:
                np.testing.assert_allclose(block.T @ block, np.eye(8), atol=1e-5)
            assert all(np.abs(blocks[0] - block).max() > 0.1 for block in blocks[1:])


def test_context_cell_is_the_equations() -> None:
    """h' = (1 - z) h + z tanh(p_n + r (h U_n + q_n)): the reset gate shuts the context out of the
    candidate, not out of the gates.
    """
    past, state = draw(H, 3 * H, seed=1), draw(4, H)
    p, q = 2 * draw(4, 3 * H), 2 * draw(4, 3 * H, seed=2)
    found = jax.jit(ContextGRUCell(H).apply)({"params": {"past": past}}, state, p, q)
    wide, u, p, q = (np.asarray(array, np.float64) for array in (state, past, p, q))
    r, z = (
        sigmoid(p[:, part] + q[:, part] + wide @ u[:, part])
        for part in (slice(0, H), slice(H, 2 * H))
    )
    new = np.tanh(p[:, 2 * H :] + r * (wide @ u[:, 2 * H :] + q[:, 2 * H :]))
    assert_close(found, (1 - z) * wide + z * new, eps=8)


def test_context_cell_without_context_is_the_unit_of_flax() -> None:
    """Which resets after the product as well; its z keeps the old."""
    past, state, p = draw(H, 3 * H, seed=1), draw(4, H), draw(4, 3 * H)
    ours = jax.jit(ContextGRUCell(H).apply)({"params": {"past": past}}, state, p)
    eye, zero = np.eye(3 * H, dtype=np.float32), np.zeros(H, np.float32)
    parts = {"r": slice(0, H), "z": slice(H, 2 * H), "n": slice(2 * H, None)}
    params: dict[str, Any] = {}
    for name, part in parts.items():
        sign = -1.0 if name == "z" else 1.0
        params[f"i{name}"] = {"kernel": sign * eye[:, part], "bias": zero}
        params[f"h{name}"] = {"kernel": sign * past[:, part]}
    params["hn"]["bias"] = zero
    assert_close(ours, jax.jit(nn.GRUCell(H).apply)({"params": params}, state, p)[0], eps=8)


@pytest.mark.quick
@pytest.mark.parametrize("reverse", [False, True])
def test_layer_is_a_loop_over_real_tokens(reverse: bool) -> None:
    """From zero, left to right or from the last real token to the left; each row alone. Padding
    copies the state; garbage in it changes nothing and gets exactly no gradient.
    """
    module, x = GRULayer(H), draw(3, 6, E)
    params = drawn(module)

    @jax.jit
    def run(x: Any) -> Any:
        def total(x: Any) -> Any:
            states = module.apply({"params": params}, x, VALID, reverse=reverse)
            return (states**2).sum(), states  # type: ignore[operator]

        return jax.value_and_grad(total, has_aux=True)(x)

    (_, states), slope = run(x)
    for row, length in enumerate(LENGTHS):
        state = np.zeros((1, H), np.float32)
        for t in reversed(range(6)) if reverse else range(6):
            if t < length:
                p = x[row, t] @ params["of_input"]["kernel"] + params["of_input"]["bias"]
                state = reference(params["cell"], state, p[None])
            np.testing.assert_allclose(states[row, t], state[0], atol=2e-6)
        padding = 0 * states[row, 0] if reverse else states[row, length - 1]
        assert (states[row, length:] == padding).all()
    np.testing.assert_array_equal(run(np.where(VALID[..., None], x, 1e6))[0][1], states)
    assert (slope[~VALID] == 0.0).all() and (np.abs(slope[VALID]).max(axis=-1) > 0).all()


def test_both_directions_side_by_side() -> None:
    """The forward half first; the backward half of position 0 has read the whole sentence; each has
    its own parameters. Low precision stays low.
    """
    module, x = BidirectionalGRU(H), draw(3, 6, E)
    params = drawn(module)
    run = jax.jit(lambda params, x: module.apply({"params": params}, x, VALID))

    @jax.jit
    def halves(x: Any) -> Any:
        return [
            GRULayer(H).apply({"params": params[name]}, x, VALID, reverse=name == "backward")
            for name in ("forward", "backward")
        ]

    both = np.asarray(run(params, x))
    np.testing.assert_allclose(both, np.concatenate(halves(x), axis=-1), atol=1e-6)
    changed = x.copy()
    changed[0, 5] += 1.0
    moved = np.abs(np.asarray(run(params, changed)) - both)[0]
    assert (moved[:5, :H] == 0.0).all() and moved[0, H:].max() > 1e-4
    small = jax.tree.map(lambda leaf: 0.3 * leaf, (params, x))
    states, wide = run(*jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), small)), run(*small)
    assert states.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(states, np.float32), wide, atol=2e-2)
