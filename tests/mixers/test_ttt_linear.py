"""TTT-Linear and TTT-MLP refuse what does not fit, start as in the paper, and learn mini-batches that
begin with the text. What all mixers promise is tested in `attention/test_mixer.py`, the learning itself in
`layers/recurrence/test_descent.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.mixers import MIXERS
from tests.attention.cases import WIDTH, make, parameters

X = np.random.default_rng(0).normal(size=(2, 9, WIDTH)).astype(np.float32)


def test_it_starts_as_in_the_paper() -> None:
    """W from N(0, 0.02^2), the rest from 0, and each text from the weights that were learned."""
    module = MIXERS.resolve("ttt_mlp")(width=64, heads=2)

    @jax.jit
    def made(x: Any) -> Any:
        params = module.init(jax.random.key(0), x, method="mix")["params"]
        begun = module.apply({"params": params}, 3, 0, jnp.float32, method="begin")
        return params, begun.matrix  # type: ignore[union-attr]

    params, begun = made(np.zeros((1, 1, 64), np.float32))
    assert params["kernel_0"].shape == (2, 32, 128) and params["kernel_1"].shape == (2, 128, 32)
    for number in (0, 1):
        assert abs(params[f"kernel_{number}"].std() - 0.02) < 1e-3
        assert not params[f"bias_{number}"].any()
    assert not params["place"].any() and not params["w_rate"]["bias"].any()
    for row in range(3):
        np.testing.assert_array_equal(begun.weights[1][0][row], params["kernel_1"])
    assert not any(x.any() for x in jax.tree.leaves(begun.sums))


def test_a_mini_batch_is_learned_at_its_end() -> None:
    """Weights change with the last token of a mini-batch alone, and the sums then begin anew; a
    negative share of a place counts as none.
    """
    module = make("ttt_linear", {"heads": 2, "mini_batch": 4})
    params = {**parameters(module), "place": np.zeros(4, np.float32)}
    step = jax.jit(
        lambda params, x, state: module.apply({"params": params}, x, state=state, method="mix")[1]
    )
    begin = module.apply({"params": params}, 2, 0, X.dtype, method="begin")

    def read(params: Any, tokens: range, state: Any) -> Any:
        for t in tokens:
            state = step(params, X[:, t : t + 1], state)
        return state

    three = read(params, range(3), begin)
    four = read(params, range(3, 4), three)
    jax.tree.map(np.testing.assert_array_equal, three.matrix.weights, begin.matrix.weights)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(three.matrix.sums))
    assert not any(np.any(x) for x in jax.tree.leaves(four.matrix.sums))
    assert np.abs(four.matrix.weights[0][0] - begin.matrix.weights[0][0]).max() > 1e-3
    never = {**params, "place": np.full(4, -9.0, np.float32)}
    same = read(never, range(9), begin).matrix.weights
    jax.tree.map(np.testing.assert_array_equal, same, begin.matrix.weights)
