"""The numbers of a config as arguments of its training step, so that a compiled program belongs to
shapes: another learning rate, or 151 steps instead of 150, run the same program.

`hyperparameters.numbers` says which settings they are. A state has all of them in one small array;
the step makes optimizer, schedule and loss of them while it is traced. Lengths are exact up to
2^24 = 16,777,216 updates, and beyond that rounded as every float32 is.
"""

from collections.abc import Iterable, Mapping

import flax.struct
import jax
import numpy as np

from attnlab.config.schema import Node
from attnlab.training.hyperparameters import numbers
from attnlab.training.step import Tree


class Number(flax.struct.PyTreeNode):
    """A number x that calculates as an array does, but for `1 - x`: in float32 that would lose most
    digits of a decay near 1 (0.999: relative 3e-5), so it was computed in float64.

    Attributes:
      value: [] float32.
      complement: [] float32, 1 - x.
    """

    value: jax.Array
    complement: jax.Array

    def __jax_array__(self) -> jax.Array:
        """x, where an array is asked for."""
        return self.value

    def __rsub__(self, other: jax.Array) -> jax.Array:
        """1 - x as it was given; other differences as of arrays."""
        is_one = isinstance(other, int | float) and other == 1
        return self.complement if is_one else other - self.value


for _name in ("neg", "add", "radd", "sub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow"):

    def _calculate(number: Number, *other: jax.Array, name: str = f"__{_name}__") -> jax.Array:
        return getattr(number.value, name)(*other)

    setattr(Number, f"__{_name}__", _calculate)


def pack(config: Mapping[str, object] | Node) -> np.ndarray:
    """The numbers of a config in the order of their names, [n,2] float32: x and 1 - x."""
    values = np.array([value for _, value in sorted(numbers(config).items())], np.float64)
    return np.stack([values, 1.0 - values], axis=-1).astype(np.float32)


def unpack(names: Iterable[str], packed: jax.Array) -> dict[str, Tree]:
    """The `Number` of each name."""
    return {name: Number(*pair) for name, pair in zip(sorted(names), packed, strict=True)}
