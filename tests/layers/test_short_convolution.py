"""A short convolution of each channel is its formula over the real tokens, in any pieces."""

import functools

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.short_convolution import ShortConvolution
from tests.rounding import assert_close

B, T, N = 3, 6, 2


@pytest.mark.parametrize("kernel", [1, 3])
def test_windows_have_the_last_real_tokens_in_any_pieces(kernel: int) -> None:
    rng = np.random.default_rng(0)
    x, valid = rng.normal(size=(B, T, N)).astype(np.float32), rng.random((B, T)) < 0.6
    params = {"kernel": rng.normal(size=(kernel, N)), "bias": rng.normal(size=N)}
    params = {"params": {name: leaf.astype(np.float32) for name, leaf in params.items()}}
    layer = jax.jit(functools.partial(ShortConvolution(kernel, use_bias=True).apply, params))
    taps, bias, expected = params["params"]["kernel"], params["params"]["bias"], np.zeros(x.shape)
    for b in range(B):
        window = [np.zeros(N)] * kernel
        for t in np.flatnonzero(valid[b]):
            window.append(x[b, t])
            a = bias + sum(taps[j] * window[-1 - j] for j in range(kernel))
            expected[b, t] = a / (1 + np.exp(-a))
    for pieces in ((6,), (2, 2, 2)):
        before, actual, begin = None, [], 0
        for length in pieces:
            piece = slice(begin, begin + length)
            y, before = layer(x[:, piece], before, valid[:, piece])
            actual.append(y)
            begin += length
        assert_close(np.concatenate(actual, axis=1), expected, eps=8)
    (unmasked, _), (masked, _) = layer(x), layer(x, None, np.ones((B, T), bool))
    np.testing.assert_allclose(unmasked, masked, atol=1e-6)


def test_it_starts_within_its_bound_and_refuses_no_taps() -> None:
    params = jax.jit(ShortConvolution(4).init)(jax.random.key(0), np.zeros((1, 2, 50)))["params"]
    assert set(params) == {"kernel"} and 0.3 < np.abs(params["kernel"]).max() <= 0.5
    with pytest.raises(UserError, match="kernel=0, must be at least 1"):
        ShortConvolution(0).init(jax.random.key(0), np.zeros((1, 2, 2)))
