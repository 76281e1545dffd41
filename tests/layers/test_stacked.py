"""What recurrent layers above each other drop, refuse and start from. That they are put together as is
said, from both ends too, with sums past the layers and states handed over, is seen by the oracles of
systems; what every recurrent layer promises: test_cells.py.
"""

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.readers import LSTMStack
from attnlab.layers.recurrent import ContextGRUCell, GRUCell
from tests.layers.test_lstm import B, E, H, T, draw, numbered

X = draw(B, T, E)


@pytest.mark.parametrize(("layers", "equal"), [(1, True), (2, False)])
def test_dropout_spares_what_goes_from_step_to_step(layers: int, equal: bool) -> None:
    """Inputs of zero stay zero whatever is dropped, so that one layer puts out the same; a second
    layer's inputs are dropped.
    """
    module = LSTMStack(H, layers, 0.5, 0)
    variables, x = numbered(jax.eval_shape(module.init, jax.random.key(0), X)), 0 * X
    quiet, noisy = jax.jit(
        lambda key: [module.apply(variables, x, rngs=rngs)[0] for rngs in ({}, {"dropout": key})]
    )(jax.random.key(0))
    assert (np.abs(quiet - noisy).max() == 0.0) == equal


def test_without_layers_it_is_the_identity_and_the_lowest_layer_adds_nothing() -> None:
    outputs, states = LSTMStack(H, 0).apply({"params": {}}, X)  # type: ignore[misc]
    np.testing.assert_array_equal(outputs, X)
    assert states == ()
    with pytest.raises(ValueError, match="starts at 2"):
        LSTMStack(H, 2, residual=1).init(jax.random.key(0), X)
    with pytest.raises(UserError, match=r"system.width=5: .*take 4 or 6"):
        LSTMStack(5, 1, directions=2).init(jax.random.key(0), X)


def test_a_step_adds_past_the_layers_as_all_steps_at_once_do() -> None:
    module = LSTMStack(H, 3, residual=3)
    variables = numbered(jax.eval_shape(module.init, jax.random.key(0), X))
    begun = module.apply(variables, X)[1]
    expected = module.apply(variables, X[:, :1], None, begun)[0]
    contribution = module.apply(variables, X[:, 0], method="contribute")
    top, _ = module.apply(variables, begun, contribution, method="advance")
    np.testing.assert_allclose(top, expected[:, 0], atol=1e-6)


def test_recurrent_matrices_of_gru_cells_start_orthogonal() -> None:
    """Each of the blocks side by side, and no two alike."""
    arguments = [np.zeros((1, size), np.float32) for size in (8, 24, 24)]
    for cell, count in ((GRUCell(8), 2), (ContextGRUCell(8), 3)):
        for matrix in jax.jit(cell.init)(jax.random.key(0), *arguments[:count])["params"].values():
            blocks = np.split(np.asarray(matrix), matrix.shape[1] // 8, axis=1)
            for block in blocks:
                np.testing.assert_allclose(block.T @ block, np.eye(8), atol=1e-5)
            assert all(np.abs(blocks[0] - block).max() > 0.1 for block in blocks[1:])
