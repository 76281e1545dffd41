"""Heads are cut from neighbouring channels, and put together in the same order."""

from __future__ import annotations

import numpy as np

from attnlab.layers.heads import joined, split


def test_heads_are_neighbouring_channels() -> None:
    x = np.arange(2 * 3 * 8).reshape(2, 3, 8)
    heads = split(x, 2)
    np.testing.assert_array_equal(heads[1, 1, 2], x[1, 2, 4:])
    np.testing.assert_array_equal(joined(heads), x)
