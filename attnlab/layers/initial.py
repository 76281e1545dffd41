"""Initializers: the defaults of the layers here, or those of the paper of a system.

Without a dtype they return JAX's default `float`: float32, or float64 if `jax_enable_x64` is on.
"""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import GLOROT, Initializer


@dataclasses.dataclass(frozen=True)
class Initial:
    """An initializer for each kind of array; at most one of the first two is above 0.

    Without either, matrices start Glorot uniform, recurrent ones orthogonal, those of a last layer
    by their inputs alone (see `output`), embeddings N(0, 1 / width) (but see `word`) and biases at
    0.

    Attributes:
      uniform: all arrays start uniform in [-uniform, uniform], as in Sutskever et al. 2014 (0.08)
        and Luong et al. 2015 (0.1).
      normal: matrices and embeddings start N(0, normal^2), recurrent ones orthogonal, as in
        Bahdanau et al. 2015 (0.01).
      forget: added to the bias of the forget gate of an LSTM.
    """

    uniform: float = 0.0
    normal: float = 0.0
    forget: float = 1.0

    def __post_init__(self) -> None:
        """Raises `UserError` if `uniform` or `normal` is negative or not finite."""
        for name, value in (("uniform", self.uniform), ("normal", self.normal)):
            if not 0.0 <= value < math.inf:
                raise UserError(
                    f"{name}={value}: expected a number of at least 0; 0 for Glorot's initializer"
                )

    def kernel(self, blocks: int = 1) -> Initializer:
        """For matrices; `blocks`: the number of matrices side by side (such as the gates of a
        cell), each drawn separately.
        """
        return self._chosen(side_by_side(GLOROT, blocks))

    def output(self) -> Initializer:
        """For the matrix to the scores of a vocabulary: uniform with variance 1 / inputs.

        Glorot's initializer divides by the mean of inputs and outputs: with thousands of words the
        first scores, and all gradients below them, would be several times smaller.
        """
        return self._chosen(nn.initializers.variance_scaling(1.0, "fan_in", "uniform"))

    def recurrent(self) -> Initializer:
        """For square matrices from state to state."""
        return symmetric(self.uniform) if self.uniform else nn.initializers.orthogonal()

    def embedding(self, width: int) -> Initializer:
        """For tables of embeddings of this width."""
        return self._chosen(nn.initializers.normal(width**-0.5))

    def word(self, deviation: float) -> Initializer:
        """For tables of embeddings that only LSTM layers read: N(0, deviation^2).

        With small embeddings the words hardly change the gates at first. Larger ones overfit
        sooner: classifiers of few texts do better with `embedding`, language models with 0.3.
        """
        if not 0.0 < deviation < math.inf:
            raise UserError(f"deviation={deviation}: expected a number above 0")
        return self._chosen(nn.initializers.normal(deviation))

    def bias(self) -> Initializer:
        """For biases."""
        return symmetric(self.uniform) if self.uniform else nn.initializers.zeros

    def _chosen(self, usual: Initializer) -> Initializer:
        if self.uniform:
            return symmetric(self.uniform)
        return nn.initializers.normal(self.normal) if self.normal else usual


class Embed(nn.Embed):
    """The table of embeddings of flax, but with JAX's default dtype, like the other parameters;
    flax always uses float32.
    """

    param_dtype: jax.typing.DTypeLike = float


def side_by_side(initializer: Initializer, blocks: int) -> Initializer:
    """Returns an initializer that draws a matrix as `blocks` blocks of columns, each drawn by
    `initializer` on its own.
    """

    def draw(
        key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        """Draws an array of this shape, its last axis in `blocks` parts with a key each."""
        if blocks == 1:
            return initializer(key, shape, dtype)
        block = (*shape[:-1], shape[-1] // blocks)
        return jnp.concatenate(
            [initializer(subkey, block, dtype) for subkey in jax.random.split(key, blocks)], axis=-1
        )

    return draw


def symmetric(bound: float) -> Initializer:
    """Returns an initializer that draws uniformly from [-bound, bound]."""

    def draw(
        key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return draw
