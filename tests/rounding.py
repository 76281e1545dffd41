"""Compares two computations of the same numbers, relative to the largest of them.

Machines round differently: with and without AVX-512, with another number of threads, the sum of
a product has another order. The error of a sum grows with its largest terms, so an absolute bound
that holds for values near 1 fails for values near 20.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np


def assert_close(actual: Any, expected: Any, *, eps: float, scale: float | None = None) -> None:
    """Raises unless |actual - expected| <= eps * machine epsilon * scale, everywhere.

    Args:
      actual, expected: arrays of equal shape, or one expected number for all.
      eps: the allowed error in machine epsilons of the coarser of the two dtypes (float32: 1.2e-7);
        whole numbers must be equal.
      scale: the size of what was added up; by default the largest |expected|.
    """
    arrays = [np.asarray(array) for array in (actual, expected)]
    floating = [array.dtype for array in arrays if jnp.issubdtype(array.dtype, jnp.floating)]
    epsilon = max((float(jnp.finfo(dtype).eps) for dtype in floating), default=0.0)
    wide_actual, wide_expected = (array.astype(np.float64) for array in arrays)
    assert wide_expected.shape in ((), wide_actual.shape), (wide_actual.shape, wide_expected.shape)
    if scale is None:
        scale = float(np.abs(wide_expected).max(initial=0.0))
    np.testing.assert_allclose(wide_actual, wide_expected, rtol=0, atol=eps * epsilon * scale)
