"""Tables of names: which tensor of a file is which parameter of ours, and how one becomes the other.

A table is a tuple of `Name`s, in the order in which a file has its tensors. A line counts where the
system has the parameters of its right side: a table lists whatever a family of models may have, and
says nowhere when. `{i}` stands for the number of a layer.

    transposed    W [out,in] of torch's Linear, kernel W^T [in,out] here; of a convolution W [out,in,k,k], [k,k,in,out] here
    split         one tensor for several parameters, cut along its last axis after transposing

Both only move numbers, so that what was read and is written again is equal to the last bit.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.errors import UserError, few
from attnlab.weights import folder

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Name:
    """A tensor and the parameters that it holds.

    Attributes:
      tensor: its name in a file.
      parameter: the path of the parameter, or of several side by side.
      transposed: whether the axes of a matrix change places, and those of a window come first.
      required: the path of a parameter without which this line does not count; where several heads
        have one of the same path.
      row: whether the tensor has one more axis in front, of one row.
    """

    tensor: str
    parameter: str | tuple[str, ...]
    transposed: bool = False
    required: str = ""
    row: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The parameters' paths."""
        return (self.parameter,) if isinstance(self.parameter, str) else self.parameter

    def split(self, tensor: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Returns the parameters of these shapes that a tensor of a file holds, split along its
        last axis, transposed and without its extra axis where this `Name` says so.
        """
        tensor = np.moveaxis(tensor, (0, 1), (-1, -2)) if self.transposed else tensor
        tensor = tensor[0] if self.row else tensor
        ends = np.cumsum([shape[-1] for shape in shapes])[:-1]
        return np.split(tensor, ends, axis=-1) if len(shapes) > 1 else [tensor]

    def join(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the tensor of a file that holds these parameters, joined along their last axis;
        the inverse of `split`.
        """
        joined = np.concatenate(parameters, axis=-1) if len(parameters) > 1 else parameters[0]
        joined = joined[None] if self.row else joined
        return np.moveaxis(joined, (-1, -2), (0, 1)) if self.transposed else joined

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns the shape of the tensor of a file, given those of its parameters here."""
        *lead, _ = shapes[0]
        joined = (*[1] * self.row, *lead, sum(shape[-1] for shape in shapes))
        return (*joined[:-3:-1], *joined[:-2]) if self.transposed else joined


def matrix(name: str, path: str, transposed: bool = True) -> tuple[Name, Name]:
    """Returns the `Name`s of a layer W, b (tensor names in files, parameter paths in attnlab) from
    its module `name` in files and its path `path`; `transposed` holds for W of torch. A bias is that
    of the layer with this kernel, where several heads have one of the same path.
    """
    return (
        Name(f"{name}.weight", f"{path}/kernel", transposed),
        Name(f"{name}.bias", f"{path}/bias", required=f"{path}/kernel"),
    )


def norm(name: str, path: str) -> tuple[Name, Name]:
    """Returns the `Name`s of a norm from its module `name` in files of torch and its path `path` in
    attnlab.
    """
    return Name(f"{name}.weight", f"{path}/scale"), Name(f"{name}.bias", f"{path}/bias")


@dataclasses.dataclass(frozen=True)
class Names:
    """The table of a family of models.

    Attributes:
      names: its lines.
      prefix: what all tensors of the model but its head begin with, where a file was saved with the
        head.
      dropped: regular expressions of tensors that a file may have and that are no parameters of the
        system.
      tied: a tensor that may be there beside another, by name, whose copy it is.
      older: parts of names in old files, and what stands for them here.
    """

    names: tuple[Name, ...]
    prefix: str
    dropped: tuple[str, ...] = ()
    tied: Mapping[str, str] = dataclasses.field(default_factory=dict)
    older: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def lines(self, shapes: Shapes) -> Iterator[Name]:
        """Yields the `Name`s (tensor name, paths) of this table for a system whose parameters have
        these shapes, by path, with layer numbers filled in; raises `UserError` if a parameter has
        no `Name`.

        Raises:
          UserError: parameters that the table has no name for.
        """
        extra = set(shapes)
        numbered = []
        for name in self.names:
            for number in _numbers(name.paths[0], shapes):
                line = dataclasses.replace(
                    name,
                    tensor=name.tensor.replace("{i}", number),
                    parameter=tuple(path.replace("{i}", number) for path in name.paths),
                )
                required = name.required.replace("{i}", number)
                if set(line.paths) <= extra and (not required or required in shapes):
                    extra -= set(line.paths)
                    numbered.append(line)
        if extra:
            raise UserError(
                f"a model of this kind has no place for {few(sorted(extra))}; it stands for another"
                " system than this one"
            )
        yield from numbered

    def read(
        self, where: Mapping[str, Path], shapes: Shapes, dtype: Any = np.float32
    ) -> dict[str, np.ndarray]:
        """Returns the parameters of a system, by path, as arrays of `dtype`, read from the files of
        `where` (tensor name to file); raises `UserError` unless these have exactly the system's
        tensors, all finite; `dropped` ones and equal copies of tied ones may be there too.

        Args:
          where: names of tensors and their files.
          shapes: of every parameter of the system.

        Raises:
          UserError: tensors that are missing, too many, of another shape or not of finite numbers,
            by name.
        """
        lines, parameters = self.check(where, shapes), dict[str, np.ndarray]()
        for name, tensor in folder.tensors({name: where[name] for name in lines}):
            line = lines[name]
            parts = line.split(tensor, [shapes[path] for path in line.paths])
            for path, part in zip(line.paths, parts, strict=True):
                parameters[path] = np.ascontiguousarray(part, dtype)
        return parameters

    def check(self, where: Mapping[str, Path], shapes: Shapes) -> dict[str, Name]:
        """Returns the `Name` of each tensor of a system by the tensor's name in `where` (to its
        file); raises `UserError` unless the files have exactly the tensors for parameters of these
        shapes, of right shape and type (also allowed: `dropped` ones, equal copies of tied ones).
        Reads only headers, and the tensors that may be copies of
        others. Arguments and errors are those of `read`.
        """
        bare = bool(self.prefix) and not any(name.startswith(self.prefix) for name in where)
        file_names = {self.newer(f"{self.prefix if bare else ''}{name}"): name for name in where}
        lines = {file_names.get(line.tensor, line.tensor): line for line in self.lines(shapes)}
        dropped = {
            name
            for full, name in file_names.items()
            if name not in lines and any(re.fullmatch(pattern, full) for pattern in self.dropped)
        }
        present = {name: file for name, file in where.items() if name not in dropped}
        expected = {
            name: line.shape([shapes[p] for p in line.paths]) for name, line in lines.items()
        }
        self._compare(present, expected)
        return lines

    def write(self, parameters: Mapping[str, np.ndarray], dtype: Any) -> dict[str, np.ndarray]:
        """Returns the tensors of a file by name, as arrays of `dtype`, made from the parameters by
        path; raises `UserError` for a parameter without a `Name`, or with NaN, infinity or numbers
        beyond the range of `dtype`.

        Raises:
          UserError: parameters that the table has no name for, that are not finite, or that
            `dtype` cannot hold.
        """
        shapes = {path: array.shape for path, array in parameters.items()}
        return {
            line.tensor: folder.check_finite(
                line.join([parameters[path] for path in line.paths]), dtype, line.tensor
            )
            for line in self.lines(shapes)
        }

    def newer(self, name: str) -> str:
        """Returns the name of a tensor as files have it today."""
        for old, new in self.older.items():
            name = name.replace(old, new)
        return name

    def _compare(self, where: Mapping[str, Path], expected: Shapes) -> None:
        """Raises `UserError`, with the names, unless the files of `where` (tensor name to file)
        have exactly the tensors of `expected` (shape by name); equal copies of tied tensors may be
        in the files too.
        """
        shapes = {name: shape for name, (shape, _) in folder.headers(where).items()}
        folder.check_floats({name: file for name, file in where.items() if name in expected})
        extra = sorted(set(shapes) - set(expected))
        for name in [name for name in extra if self.tied.get(name) in where]:
            if folder.are_equal(where, name, self.tied[name]):
                extra.remove(name)
        misshapen = [
            f"{name} {list(shapes[name])} instead of {list(shape)}"
            for name, shape in expected.items()
            if name in shapes and shapes[name] != shape
        ]
        missing = [name for name in expected if name not in shapes]
        problems = [
            f"{len(names)} {fault}: {few(names)}"
            for fault, names in (
                ("missing", missing),
                ("that the config does not have", extra),
                ("of another shape", misshapen),
            )
            if names
        ]
        if problems:
            files = sorted({str(file) for file in where.values()})
            raise UserError(
                f"the tensors of {few(files)} are not those that config.json tells of; "
                + "; ".join(problems)
            )


def flat(params: Any) -> dict[str, Any]:
    """Flattens a tree of parameters into a dictionary by path, "layer_0/attention/out/kernel"."""
    leaves: dict[str, Any] = {}
    for key, value in params.items():
        below = flat(value) if isinstance(value, Mapping) else {"": value}
        leaves |= {f"{key}/{path}".removesuffix("/"): leaf for path, leaf in below.items()}
    return leaves


def nested(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the tree of parameters from a dictionary by path; the inverse of `flat`."""
    tree: dict[str, Any] = {}
    for path, leaf in parameters.items():
        *above, last = path.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = leaf
    return tree


def _numbers(path: str, shapes: Shapes) -> list[str]:
    """Returns the layer numbers that stand for `{i}` of `path` in the parameters' paths (keys of
    `shapes`), as texts in order; [""] for a path without `{i}`.
    """
    if "{i}" not in path:
        return [""]
    pattern = re.escape(path).replace(re.escape("{i}"), "([0-9]+)")
    matches = (re.fullmatch(pattern, candidate) for candidate in shapes)
    return sorted({match[1] for match in matches if match}, key=int)
