"""The inner precision of attention: of scores, softmax, sums and angles.

    inputs          inside          context and weights
    bfloat16        float32         bfloat16, float32
    float32         float32         float32
    float64         float64         float64

So float64 parameters and inputs switch on float64. JAX has float64 arrays only if they are enabled:

    jax.config.update("jax_enable_x64", True)          or, for a while,          with jax.enable_x64(True): ...

Where the documentation of this package says float32, it means the inner precision.
"""

from typing import Any

import jax
import jax.numpy as jnp


def inner_dtype(*arrays: Any) -> Any:
    """Returns the inner precision for arrays, or shapes with a dtype: float64 if one of them is
    float64, else float32.
    """
    return jnp.result_type(jnp.float32, *arrays)


def widened(x: Any) -> jax.Array:
    """x, of any shape, in its inner precision."""
    return jnp.asarray(x).astype(inner_dtype(x))
