"""The GRU of decoders computes the equation of Cho et al. 2014, appendix A.1.2, and both directions of
a GRU stand side by side. What every recurrent layer promises: test_cells.py.
"""

from typing import Any

import jax
import numpy as np

from attnlab.layers.recurrent import BidirectionalGRU, ContextGRUCell, GRUCell, GRULayer
from tests.rounding import assert_close

H, E = 5, 3
LENGTHS = (6, 3, 1)
VALID = np.arange(6)[None] < np.array(LENGTHS)[:, None]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def drawn(module: Any) -> Any:
    """Parameters of a layer, N(0, 1)."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), draw(3, 6, E), VALID)["params"]
    leaves, tree = jax.tree.flatten(shapes)
    return jax.tree.unflatten(
        tree, [draw(*leaf.shape, seed=number) for number, leaf in enumerate(leaves)]
    )


def test_recurrent_matrices_start_orthogonal() -> None:
    """Each of the blocks side by side, and no two alike."""
    arguments = [np.zeros((1, size), np.float32) for size in (8, 24, 24)]
    for cell, count in ((GRUCell(8), 2), (ContextGRUCell(8), 3)):
        for matrix in jax.jit(cell.init)(jax.random.key(0), *arguments[:count])["params"].values():
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
    actual = jax.jit(ContextGRUCell(H).apply)({"params": {"past": past}}, state, p, q)
    wide, u, p, q = (np.asarray(array, np.float64) for array in (state, past, p, q))
    r, z = (
        sigmoid(p[:, part] + q[:, part] + wide @ u[:, part])
        for part in (slice(0, H), slice(H, 2 * H))
    )
    new = np.tanh(p[:, 2 * H :] + r * (wide @ u[:, 2 * H :] + q[:, 2 * H :]))
    assert_close(actual, (1 - z) * wide + z * new, eps=8)


def test_both_directions_side_by_side() -> None:
    """The forward half first; each has its own parameters."""
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
