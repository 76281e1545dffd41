"""A short convolution starts within its bound; the oracles of mixers see its formula, in pieces too."""

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.short_convolution import ShortConvolution


def test_it_starts_within_its_bound_is_zero_at_padding_and_refuses_no_taps() -> None:
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
