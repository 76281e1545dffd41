"""Convolutions start as is said and drop their inputs. That they equal plain loops, all at once and in
pieces, and read no padding, is seen by the oracles of ConvS2S and of mixers, which use the short one too.
Tokens of a piece of a text go to the slots of blocks that the text would give them; what else is kept of a
text that is read in pieces is seen by `attention/test_mixer.py`, in pieces with padding inside.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.convolution import GatedConvolution, NormedDense, ShortConvolution
from attnlab.layers.history import after, slots
from tests.rounding import assert_close


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.quick
def test_weights_start_as_drawn_and_their_length_is_a_parameter_of_its_own() -> None:
    module, x = NormedDense(6, keep=0.8, gain=2.0), drawn(3, 50)
    params = jax.device_get(jax.jit(module.init)(jax.random.key(0), x)["params"])
    run = jax.jit(lambda params: module.apply({"params": params}, x))
    expected = x @ params["v"]
    for changes, times in (({}, 1), ({"v": 10 * params["v"]}, 1), ({"g": 10 * params["g"]}, 10)):
        assert_close(run({**params, **changes}), times * expected, eps=32)
    assert params["v"].std() == pytest.approx(2 * (0.8 / 50) ** 0.5, rel=0.15)


def test_a_stack_keeps_the_scale_it_starts_with() -> None:
    """Four residual blocks times sqrt(1/2), as ConvS2S has them; with a gain of 1 the standard
    deviation would fall to a half.
    """
    module, valid = GatedConvolution(64, 3), np.ones((4, 30), bool)

    @jax.jit
    def through(key: jax.Array, x: Any) -> Any:
        y, _ = module.init_with_output(key, x, valid, method="same")
        return 0.5**0.5 * (y + x)

    x = drawn(4, 30, 64)
    for number in range(4):
        x = through(jax.random.key(number), x)
    assert 0.9 < np.std(x) < 2


def test_dropout_is_on_the_inputs_and_needs_its_stream() -> None:
    plain, dropping = (GatedConvolution(5, 3, rate) for rate in (0.0, 0.5))
    x, valid = drawn(2, 6, 4), np.ones((2, 6), bool)

    @jax.jit
    def found(key: jax.Array) -> Any:
        params = plain.init(key, x, valid, method="same")
        run = lambda module, **rngs: module.apply(params, x, valid, method="same", rngs=rngs)
        return run(plain), run(dropping), run(dropping, dropout=key)

    expected, quiet, noisy = found(jax.random.key(1))
    np.testing.assert_array_equal(quiet, expected)
    assert np.abs(noisy - quiet).max() > 1e-2


def test_a_piece_comes_behind_what_was_kept_in_its_own_dtype() -> None:
    joined = after(np.zeros((2, 3, 4), np.float32), jnp.ones((2, 1, 4), jnp.bfloat16))
    assert joined.shape == (2, 4, 4) and joined.dtype == jnp.bfloat16


def test_a_short_one_starts_within_its_bound_is_zero_at_padding_and_refuses_no_taps() -> None:
    layer, x, valid = (
        ShortConvolution(4, use_bias=True),
        np.random.default_rng(0).normal(size=(1, 9, 50)),
        np.arange(9) % 3 == 0,
    )
    (y, _), variables = layer.init_with_output(jax.random.key(0), x, None, valid[None])
    assert (y[0, ~valid] == 0).all() and (y[0, valid] != 0).all()
    assert set(variables["params"]) == {"kernel", "bias"}
    assert 0.3 < np.abs(variables["params"]["kernel"]).max() <= 0.5
    with pytest.raises(UserError, match="kernel=0, must be at least 1"):
        ShortConvolution(0).init(jax.random.key(0), np.zeros((1, 2, 2)))


def test_tokens_go_to_the_slots_that_the_text_would_give_them() -> None:
    """Blocks of 3: the first row has read 4, so it begins at slot 1; the second 3; padding takes no
    slot. From the beginning no slot is left out.
    """
    valid = np.array([[True, False, True], [True, True, True]])
    place = jax.jit(slots, static_argnums=2)
    token, slot, positions = place(np.array([4, 3]), valid, 3)
    np.testing.assert_array_equal(token, [[3, 0, 2, 3, 3, 3], [0, 1, 2, 3, 3, 3]])
    np.testing.assert_array_equal(np.asarray(slot)[valid], [1, 2, 0, 1, 2])
    np.testing.assert_array_equal(positions, np.arange(3, 9) + np.zeros((2, 1)))
    token, _, positions = place(None, valid, 3)
    np.testing.assert_array_equal(token, [[0, 2, 3], [0, 1, 2]])
    np.testing.assert_array_equal(positions, [[0, 1, 2], [0, 1, 2]])
