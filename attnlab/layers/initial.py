"""How parameters start: array by array, as the layers here have it or the paper of a system (`Initial`);
and the matrices of a Transformer, as the papers have it (`Initializer` and those below it). L layers in a
stack, d the model width, D the width of a head:

    own     as each layer says: matrices Glorot uniform, embeddings as the system says
    gpt2    N(0, 0.02^2); the last matrix of a mixer and of a feed-forward N(0, 0.02^2 / n), n = 2 L
    bert    N(0, 0.02^2), cut at two deviations and not widened again
    t5      f N(0, 1 / inputs); queries f N(0, 1 / (d D)); embeddings f N(0, 1); relative biases f N(0, 1 / d)

n counts the residual connections of a stack, so it is 3 L in a decoder that attends to a source.
Matrices are the parameters named kernel and embedding, and tables of positions; all others (biases,
norms, weight-normalised convolutions) start as their layer says. T5's matrix to the logits, where
it is not the embedding, starts f N(0, 1 / d).

Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3,
and the authors' code; J. Devlin et al., "BERT", NAACL 2019, the authors' code; C. Raffel et al.,
"Exploring the Limits of Transfer Learning", JMLR 2020, the authors' code.

Without a dtype the initializers that `Initial` gives return JAX's default `float`: float32, or float64
if `jax_enable_x64` is on.
"""

import dataclasses
import math
import zlib
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import GLOROT, Draw

_TABLES = ("kernel", "embedding", "table")
_LAST = ("out", "outer")  # layers whose output goes to a residual connection


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

    def kernel(self, blocks: int = 1) -> Draw:
        """For matrices; `blocks`: the number of matrices side by side (such as the gates of a
        cell), each drawn separately.
        """
        return self._chosen(side_by_side(GLOROT, blocks))

    def output(self) -> Draw:
        """For the matrix to the scores of a vocabulary: uniform with variance 1 / inputs.

        Glorot's initializer divides by the mean of inputs and outputs: with thousands of words the
        first scores, and all gradients below them, would be several times smaller.
        """
        return self._chosen(nn.initializers.variance_scaling(1.0, "fan_in", "uniform"))

    def recurrent(self) -> Draw:
        """For square matrices from state to state."""
        return symmetric(self.uniform) if self.uniform else nn.initializers.orthogonal()

    def embedding(self, width: int) -> Draw:
        """For tables of embeddings of this width."""
        return self._chosen(nn.initializers.normal(width**-0.5))

    def word(self, deviation: float) -> Draw:
        """For tables of embeddings that only LSTM layers read: N(0, deviation^2).

        With small embeddings the words hardly change the gates at first. Larger ones overfit
        sooner: classifiers of few texts do better with `embedding`, language models with 0.3.
        """
        if not 0.0 < deviation < math.inf:
            raise UserError(f"deviation={deviation}: expected a number above 0")
        return self._chosen(nn.initializers.normal(deviation))

    def bias(self) -> Draw:
        """For biases."""
        return symmetric(self.uniform) if self.uniform else nn.initializers.zeros

    def _chosen(self, usual: Draw) -> Draw:
        if self.uniform:
            return symmetric(self.uniform)
        return nn.initializers.normal(self.normal) if self.normal else usual


class Embed(nn.Embed):
    """The table of embeddings of flax, but with JAX's default dtype, like the other parameters;
    flax always uses float32.
    """

    param_dtype: jax.typing.DTypeLike = float


def side_by_side(initializer: Draw, blocks: int) -> Draw:
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


def symmetric(bound: float) -> Draw:
    """Returns an initializer that draws uniformly from [-bound, bound]."""

    def draw(
        key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = float
    ) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return draw


@dataclasses.dataclass(frozen=True)
class Where:
    """A matrix of a Transformer.

    Attributes:
      path: its parameter path.
      shape: its shape, [inputs, outputs]; of a table [rows, width].
      width: d.
      connections: of the stack it is in, n; 0 outside of stacks.
      heads: of the attention it is in; 1 where there are none.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    width: int
    connections: int = 0
    heads: int = 1

    @property
    def last(self) -> bool:
        """Whether its product goes to a residual connection."""
        return self.connections > 0 and len(self.path) > 1 and self.path[-2] in _LAST


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Each layer starts its parameters itself. The base of every initializer."""

    def deviation(self, matrix: Where) -> float | None:
        """The standard deviation of a matrix; None for as its layer says."""
        return None

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Numbers of deviation 1, before they are cut."""
        return jax.random.normal(key, shape, dtype)

    def begun(self, params: Any, key: jax.Array, places: dict[tuple[str, ...], Where]) -> Any:
        """Returns the nested parameters `params` with the matrix at each path in `places` (path to
        the `Where` that describes it) drawn anew from `key` with the deviation of this initializer;
        where that is None, and everywhere else, they stay as the layers drew them.
        """
        flat = flax.traverse_util.flatten_dict(params)
        for path, where in places.items():
            deviation, leaf = self.deviation(where), flat[path]
            if deviation is not None:
                leaf_key = jax.random.fold_in(key, zlib.crc32("/".join(path).encode()))
                flat[path] = deviation * self.draw(leaf_key, leaf.shape, leaf.dtype)
        return flax.traverse_util.unflatten_dict(flat)


@dataclasses.dataclass(frozen=True)
class Gpt2(Initializer):
    """N(0, s^2) everywhere, s^2 / n where a residual connection follows (Radford et al. 2019).

    Attributes:
      stddev: s, the standard deviation of the first weights.
    """

    stddev: float = 0.02

    def __post_init__(self) -> None:
        if not 0.0 < self.stddev < math.inf:
            raise UserError(f"initial.stddev={self.stddev}: expected a number above 0")

    def deviation(self, matrix: Where) -> float:
        """See `Initializer.deviation`."""
        return self.stddev / math.sqrt(matrix.connections) if matrix.last else self.stddev


@dataclasses.dataclass(frozen=True)
class Bert(Gpt2):
    """N(0, s^2), cut at two deviations (Devlin et al. 2019). The field is that of `Gpt2`."""

    def deviation(self, matrix: Where) -> float:
        """See `Initializer.deviation`."""
        return self.stddev

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Initializer.draw`."""
        return jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)


@dataclasses.dataclass(frozen=True)
class T5(Initializer):
    """By the number of inputs, queries smaller, since T5 does not scale scores (Raffel et al. 2020).

    Attributes:
      factor: f, by which all first weights are multiplied.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < math.inf:
            raise UserError(f"initial.factor={self.factor}: expected a number above 0")

    def deviation(self, matrix: Where) -> float:
        """Returns the standard deviation of a matrix, described by a `Where`: factor for
        embeddings, factor / sqrt(width) for tables of biases, factor / sqrt(inputs * head width)
        for queries, else factor / sqrt(inputs). See `Initializer.deviation`.
        """
        if matrix.path[-1] == "embedding":
            return self.factor
        if matrix.path[-1] == "table":
            return self.factor / math.sqrt(matrix.width)
        if matrix.path[-2:] == ("w_query", "kernel"):
            return self.factor / math.sqrt(matrix.shape[0] * matrix.shape[1] / matrix.heads)
        return self.factor / math.sqrt(matrix.shape[0])


def is_matrix(path: tuple[str, ...], leaf: Any) -> bool:
    """Whether a parameter is one of those that an initializer draws."""
    return path[-1] in _TABLES and len(leaf.shape) == 2
