"""How the weights of a network start: as the layers here would have it, or as the paper of a system
says.

Drawn without a dtype they are of JAX's default, `float`: float32, and float64 once `jax_enable_x64`
is on.
"""

from __future__ import annotations

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
      uniform: all of them start uniform in [-uniform, uniform], as in Sutskever et al. 2014 (0.08)
        and Luong et al. 2015 (0.1).
      normal: matrices and embeddings start N(0, normal^2), recurrent ones orthogonal, as in
        Bahdanau et al. 2015 (0.01).
      forget: what an LSTM adds to the bias of its forget gate.
    """

    uniform: float = 0.0
    normal: float = 0.0
    forget: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("uniform", self.uniform), ("normal", self.normal)):
            if not 0.0 <= value < math.inf:
                raise UserError(
                    f"{name}={value}: expected a number of at least 0; 0 for Glorot's initializer"
                )

    def kernel(self, blocks: int = 1) -> Initializer:
        """Of matrices; `blocks`: so many stand side by side, as those of the gates of one cell do,
        each drawn as if it were alone.
        """
        return self._chosen(side_by_side(GLOROT, blocks))

    def output(self) -> Initializer:
        """Of the matrix to the scores of a vocabulary: uniform with variance 1 / inputs.

        Glorot's initializer divides by the mean of inputs and outputs: with thousands of words the first
        scores, and the slopes of everything below them, would be several times smaller.
        """
        return self._chosen(nn.initializers.variance_scaling(1.0, "fan_in", "uniform"))

    def recurrent(self) -> Initializer:
        """Of square matrices from state to state."""
        return symmetric(self.uniform) if self.uniform else nn.initializers.orthogonal()

    def embedding(self, width: int) -> Initializer:
        """Of tables of embeddings of this width."""
        return self._chosen(nn.initializers.normal(width**-0.5))

    def word(self, deviation: float) -> Initializer:
        """Of tables of embeddings that only LSTM layers read: N(0, deviation^2).

        With small ones the gates hardly hear the words at first. Larger ones are learnt by heart
        sooner: classifiers of few texts do better with `embedding`, language models with 0.3.
        """
        if not 0.0 < deviation < math.inf:
            raise UserError(f"deviation={deviation}: expected a number above 0")
        return self._chosen(nn.initializers.normal(deviation))

    def bias(self) -> Initializer:
        """Of biases."""
        return symmetric(self.uniform) if self.uniform else nn.initializers.zeros

    def _chosen(self, usual: Initializer) -> Initializer:
        if self.uniform:
            return symmetric(self.uniform)
        return nn.initializers.normal(self.normal) if self.normal else usual


class Embed(nn.Embed):
    """A table of embeddings as flax has it, but of JAX's default dtype, as the other parameters
    are, where flax has always float32.
    """

    param_dtype: jax.typing.DTypeLike = float


def side_by_side(initializer: Initializer, blocks: int) -> Initializer:
    """The initializer that draws so many blocks of columns one by one."""

    def draw(
        key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        if blocks == 1:
            return initializer(key, shape, dtype)
        block = (*shape[:-1], shape[-1] // blocks)
        return jnp.concatenate(
            [initializer(one, block, dtype) for one in jax.random.split(key, blocks)], axis=-1
        )

    return draw


def symmetric(bound: float) -> Initializer:
    """The initializer that draws uniformly from [-bound, bound]."""

    def draw(
        key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return draw
