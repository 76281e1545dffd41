"""How much each output of a function depends on each of its inputs, for layers without weights.

    S_ij = || d y_i / d x_j ||_F          the Frobenius norm of a block of the Jacobian, over channels

Axis letters: B batch, n outputs, k channels of an output, S inputs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.layers.dense import widened

AT_ONCE = 32  # channels of an output whose backward passes run side by side


def sensitivity(function: Callable[[Any], jax.Array], inputs: Any) -> Any:
    """Returns, for every array [B,S,...,channels] of the tree `inputs`, how much each row of y =
    `function`(inputs) [B,n,k] depends on it: [B,n,S,...], the norm of the derivative over both
    channel axes, by n k backward passes, `AT_ONCE` of them at a time, which bounds the memory.

    Args:
      function: inputs to y [B,n,k]; the rows of the batch do not depend on each other.
      inputs: a tree of arrays [B,S,...,channels].
    """
    y, back = jax.vjp(function, inputs)

    def of_output(i: jax.Array) -> Any:
        def of_channel(c: jax.Array) -> Any:
            (slopes,) = back(jnp.zeros_like(y).at[:, i, c].set(1))
            return jax.tree.map(lambda slope: jnp.square(widened(slope)).sum(axis=-1), slopes)

        squares = jax.lax.map(of_channel, jnp.arange(y.shape[2]), batch_size=AT_ONCE)
        return jax.tree.map(lambda square: jnp.sqrt(square.sum(axis=0)), squares)

    of_outputs = jax.lax.map(of_output, jnp.arange(y.shape[1]))
    return jax.tree.map(lambda norms: jnp.moveaxis(norms, 0, 1), of_outputs)
