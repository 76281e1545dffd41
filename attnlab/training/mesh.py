"""How arrays lie on a mesh of devices with named axes, by rules on the path of each.

    parallel.data      copies of the state, each with its rows of a batch; -1: what the others leave
    parallel.fsdp      parts of the state; each has its rows of a batch too
    parallel.rules     "REGEX=AXIS@DIMENSION", the first whose regular expression an array's path
                       has; "MODULE:FUNCTION" of (path, shape) -> axes of the dimensions, or None
                       where it says nothing

What no rule names: an array of at least `LEAST` numbers is divided along the largest dimension that
`fsdp` divides, the last of equal ones; any other is whole on every device. Paths of moments and
averages end in the path of their parameter ("opt_state/1/0/mu/layer_0/attention/w_query/kernel"),
so that one rule serves all of them. The general rule follows `infer_sharding` of big_vision.
"""

import dataclasses
import functools
import importlib
import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attnlab.errors import UserError, nearest, own_module, users_code
from attnlab.gathering import whole
from attnlab.training.trained import compile_pattern, leaves_by_path

if TYPE_CHECKING:
    from attnlab.training.settings import Parallel
    from attnlab.training.step import Params, Tree

AXES = ("data", "fsdp", "tensor", "sequence")
ROWS = PartitionSpec(("data", "fsdp"))
LEAST = 2**14
"""Numbers of the smallest array that is divided: gathering less costs more than it saves."""
Axes = tuple[str | None, ...]
"""The axis that each dimension of an array is divided along; None for none."""
Rule = Callable[[str, tuple[int, ...]], Axes | None]


def axis_sizes(settings: "Parallel", count: int) -> dict[str, int]:
    """Returns the size of every mesh axis (data, fsdp, tensor, sequence) for `count` devices;
    raises `UserError` if data times fsdp is not `count` (data -1 takes the remainder), or tensor or
    sequence is above 1.

    Raises:
      UserError: they do not multiply to the devices, or an axis that is not there yet.
    """
    for name in ("tensor", "sequence"):
        if getattr(settings, name) > 1:
            raise UserError(
                f"config.parallel.{name}={getattr(settings, name)}: not yet; data and fsdp are there"
            )
    data = count // settings.fsdp if settings.data == -1 else settings.data
    if data * settings.fsdp != count:
        divisors = [str(size) for size in range(1, count + 1) if count % size == 0]
        raise UserError(
            f"config.parallel.data={settings.data} and fsdp={settings.fsdp} do not multiply to"
            f" {count} devices; fsdp may be {', '.join(divisors)} with data=-1"
        )
    return {"data": data, "fsdp": settings.fsdp, "tensor": 1, "sequence": 1}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each array of a state lies on a mesh.

    Attributes:
      mesh: of the devices, with the axes `AXES`.
      rules: asked in their order, before the general one.
    """

    mesh: Mesh
    rules: tuple[tuple[str, Rule], ...] = ()

    @classmethod
    def of(cls, settings: "Parallel", devices: Sequence[jax.Device]) -> "Layout":
        """Returns the `Layout` of the config node `parallel` over these devices; raises `UserError`
        if its axes do not fit them or a rule is invalid.

        Raises:
          UserError: axes that do not fit the devices, or a rule that is none.
        """
        sizes = axis_sizes(settings, len(devices))
        mesh = Mesh(np.array(devices).reshape(tuple(sizes.values())), AXES)
        return cls(mesh, tuple((text, _read_rule(text)) for text in settings.rules))

    @property
    def divides(self) -> bool:
        """Whether any array may be divided."""
        return self.mesh.size > self.mesh.shape["data"]

    def axes(self, path: str, shape: tuple[int, ...]) -> Axes:
        """Returns the mesh axis, a name or None, of each dimension of the state's array at `path`:
        ("rows",) below "remembered", else by the first rule that fits its path and shape, else by
        the general rule.
        """
        if path.partition("/")[0] == "remembered":
            return ("rows",)
        candidates = (rule(path, shape) for _, rule in self.rules)
        for axes in candidates:
            if axes is not None and self._fits(axes, shape):
                return axes
        return self._general_axes(shape)

    def _fits(self, axes: Axes, shape: tuple[int, ...]) -> bool:
        sizes = self.mesh.shape
        return len(axes) <= len(shape) and all(
            axis is None or size % sizes[axis] == 0 for axis, size in zip(axes, shape, strict=False)
        )

    def _general_axes(self, shape: tuple[int, ...]) -> Axes:
        """Returns the mesh axes of an array of this shape by the general rule: "fsdp" for the
        largest dimension (of equal ones the last) that the size of this mesh axis divides, None for
        those before it; () if that size is 1, the array is small or no dimension fits.
        """
        parts = self.mesh.shape["fsdp"]
        fitting = [place for place, size in enumerate(shape) if size % parts == 0]
        if parts == 1 or not fitting or math.prod(shape) < LEAST:
            return ()
        largest = max(fitting, key=lambda place: (shape[place], place))
        return tuple("fsdp" if place == largest else None for place in range(largest + 1))

    def sharding(self, path: str, shape: tuple[int, ...]) -> NamedSharding:
        """Where an array of a state lies."""
        axes = self.axes(path, shape)
        spec = ROWS if axes == ("rows",) else PartitionSpec(*axes)
        return NamedSharding(self.mesh, spec)

    def shardings(self, tree: "Tree") -> "Tree":
        """Returns a tree like `tree` (arrays or their shapes) with the `NamedSharding` of each
        array.
        """
        leaves = leaves_by_path(tree).items()
        shardings = [self.sharding(path, leaf.shape) for path, leaf in leaves]
        return jax.tree.unflatten(jax.tree.structure(tree), shardings)

    def check_rules(self, state: "Tree") -> None:
        """Raises `UserError` for a rule that matches no path of the state, or that can divide none
        of the arrays that it matches.
        """
        shapes = {path: leaf.shape for path, leaf in leaves_by_path(state).items()}
        for text, rule in self.rules:
            meant = [
                (path, shape, axes) for path, shape in shapes.items() if (axes := rule(path, shape))
            ]
            if not meant:
                ends = sorted({path.rpartition("/")[2] for path in shapes})
                raise UserError(
                    f"config.parallel.rules: {text!r} is of no array; paths end in {', '.join(ends[:8])}"
                )
            if not any(self._fits(axes, shape) for _, shape, axes in meant):
                path, shape, axes = meant[0]
                raise UserError(
                    f"config.parallel.rules: {text!r}: {path} has the shape {list(shape)}, which"
                    f" {dict(self.mesh.shape)} does not divide along {list(axes)}"
                )

    def gathered(self, params: "Params") -> "AbstractContextManager[Params]":
        """See `gathering.whole`."""
        shardings = self.shardings({"params": params})["params"]
        return whole(params, shardings, NamedSharding(self.mesh, PartitionSpec()))


def place(array: jax.Array | np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Puts an array, whole in every process, on devices by `sharding`; what lies there stays."""
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    values = np.asarray(array)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def on_mesh(leaf: object) -> bool:
    """Whether an array, or the shape of one, lies on a mesh."""
    return isinstance(getattr(leaf, "sharding", None), NamedSharding)


def spans(tree: "Tree") -> bool:
    """Whether arrays, or shapes of them, lie on a mesh of several processes."""
    leaves = filter(on_mesh, jax.tree.leaves(tree))
    return not all(leaf.sharding.is_fully_addressable for leaf in leaves)


def on_host(function: "Callable[[Tree], Tree]", array: "Tree") -> np.ndarray:
    """Computes `function` of an array where it lies, and returns the result on the host, the same in
    all processes. It is waited for: on a processor, programs of several devices at once may wait for
    each other for ever.
    """
    if on_mesh(array):
        function = _jitted(function, NamedSharding(array.sharding.mesh, PartitionSpec()))
    return jax.device_get(function(array))


@functools.cache
def _jitted(function: "Callable[[Tree], Tree]", sharding: NamedSharding) -> jax.stages.Wrapped:
    return jax.jit(function, out_shardings=sharding)


def _read_rule(text: str) -> Rule:
    """Parses a rule, 'REGEX=fsdp@DIMENSION' or the path 'MODULE:FUNCTION' of a user's function, and
    returns it as a function from an array's path and shape to its mesh axes or None; raises
    `UserError` for anything else.
    """
    if match := re.fullmatch(r"(.+)=([a-z]+)@(-?\d+)", text):
        pattern, axis, place = match[1], match[2], int(match[3])
        if axis != "fsdp":
            raise UserError(
                f"config.parallel.rules: axis {axis!r} in {text!r}; {nearest(axis, ['fsdp'])}"
            )
        return functools.partial(
            _axes_by_pattern, compile_pattern(pattern, "config.parallel.rules"), axis, place
        )
    if re.fullmatch(r"[\w.]+:\w+", text):
        with users_code():
            module, _, name = text.partition(":")
            own_module(module)
            rule: Rule = getattr(importlib.import_module(module), name)
            return rule
    raise UserError(
        f"config.parallel.rules: {text!r} is neither 'REGEX=AXIS@DIMENSION', as 'embedding=fsdp@0',"
        " nor 'MODULE:FUNCTION'"
    )


def _axes_by_pattern(
    pattern: re.Pattern[str], axis: str, place: int, path: str, shape: tuple[int, ...]
) -> Axes | None:
    """Returns the axes of an array of this path and shape: `axis` in its dimension `place` if the
    path has the pattern and the array that dimension, else None.
    """
    if not pattern.search(path) or not -len(shape) <= place < len(shape):
        return None
    place %= len(shape)
    return tuple(axis if number == place else None for number in range(place + 1))
