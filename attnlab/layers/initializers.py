"""How the matrices of a Transformer start, as the papers have it; L layers in a stack, d the model
width, D the width of a head.

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
"""

import dataclasses
import math
import zlib
from typing import Any

import flax.traverse_util
import jax

from attnlab.errors import UserError

_TABLES = ("kernel", "embedding", "table")
_LAST = ("out", "outer")  # layers whose output goes to a residual connection


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
