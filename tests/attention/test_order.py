"""Sums along keys in the order of their positions."""

import numpy as np
import pytest

from attnlab.attention.order import after_each, in_order, out_of_order


@pytest.mark.quick
def test_keys_out_of_order_are_summed_in_order_and_put_back() -> None:
    keys = np.array([[2, 0, 3, 1], [7, 6, 5, 4]], np.int32)
    x = np.arange(16.0, dtype=np.float32).reshape(2, 2, 4)
    for where, rows in ((keys, keys), (keys[:1], keys[[0, 0]])):
        moved, back = in_order(x, where)
        sums = np.asarray(out_of_order(after_each(moved), back))
        for b, h, slot in np.ndindex(x.shape):
            later = x[b, h][rows[b] > rows[b, slot]].sum()
            assert sums[b, h, slot] == later
    same, nothing = in_order(x, 3)
    assert same is x and nothing is None and out_of_order(x, None) is x
