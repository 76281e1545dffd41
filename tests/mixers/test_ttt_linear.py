"""TTT-Linear and TTT-MLP: what they refuse, how they start, and that their mini-batches begin with the
text. What all mixers promise is tested in `attention/test_mixer.py`, the learning itself in
`layers/recurrence/test_descent.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from tests.attention.cases import WIDTH, make, parameters

X = np.random.default_rng(0).normal(size=(2, 9, WIDTH)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("ttt_linear", {"heads": 5}, "heads could be"),
        ("ttt_linear", {"heads": 4}, "channels turn in pairs"),
        ("ttt_linear", {"heads": 2, "mini_batch": 0}, "ttt_linear: mini_batch=0"),
        ("ttt_linear", {"heads": 2, "chunk": 5}, "chunk=5 must divide mini_batch=16.* is 4"),
        ("ttt_mlp", {"heads": 2, "largest": 0.0}, "ttt_mlp: .*largest=0.0 above 0"),
        ("ttt_mlp", {"heads": 2, "expansion": 0}, "expansion=0, must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    module = MIXERS.resolve(name)(width=WIDTH, **fields)
    with pytest.raises(UserError, match=message):
        jax.eval_shape(lambda: module.init(jax.random.key(0), X, method="mix"))


def test_it_starts_as_in_the_paper() -> None:
    """W from N(0, 0.02^2), the rest from 0, and each text from the weights that were learned."""
    module = MIXERS.resolve("ttt_mlp")(width=64, heads=2)
    made = jax.jit(lambda x: module.init(jax.random.key(0), x, method="mix"))
    params = made(np.zeros((1, 1, 64), np.float32))["params"]
    assert params["kernel_0"].shape == (2, 32, 128) and params["kernel_1"].shape == (2, 128, 32)
    for number in (0, 1):
        assert abs(params[f"kernel_{number}"].std() - 0.02) < 1e-3
        assert not params[f"bias_{number}"].any()
    assert not params["place"].any() and not params["w_rate"]["bias"].any()
    begun = module.apply({"params": params}, 3, 0, jnp.float32, method="begin").matrix
    for row in range(3):
        np.testing.assert_array_equal(begun.weights[1][0][row], params["kernel_1"])
    assert not any(x.any() for x in jax.tree.leaves(begun.sums))


def test_a_mini_batch_is_learned_at_its_end() -> None:
    """Weights change with the last token of a mini-batch alone, and the sums then begin anew; a
    negative share of a place counts as none.
    """
    module = make("ttt_linear", {"heads": 2, "mini_batch": 4})
    params = {**parameters(module), "place": np.zeros(4, np.float32)}
    read = jax.jit(
        lambda params, x, state: module.apply({"params": params}, x, state=state, method="mix")[1]
    )
    begin = module.apply({"params": params}, 2, 0, X.dtype, method="begin")
    three = read(params, X[:, :3], begin)
    four = read(params, X[:, 3:4], three)
    jax.tree.map(np.testing.assert_array_equal, three.matrix.weights, begin.matrix.weights)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(three.matrix.sums))
    assert not any(np.any(x) for x in jax.tree.leaves(four.matrix.sums))
    assert np.abs(four.matrix.weights[0][0] - begin.matrix.weights[0][0]).max() > 1e-3
    never = {**params, "place": np.full(4, -9.0, np.float32)}
    same = read(never, X, begin).matrix.weights
    jax.tree.map(np.testing.assert_array_equal, same, begin.matrix.weights)
