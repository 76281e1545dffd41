"""Tables of names: which tensor of a file is which parameter of ours, and how one becomes the other.

A table is a tuple of `Name`s, in the order in which a file has its tensors. A line counts where the
system has the parameters of its right side: a table lists whatever a family of models may have, and
says nowhere when. `{i}` stands for the number of a layer.

    transposed    W [out,in] of torch's Linear, kernel W^T [in,out] here; of a convolution W [out,in,k,k], [k,k,in,out] here
    split         one tensor for several parameters, cut along its last axis after transposing

Both only move numbers, so that what was read and is written again is equal to the last bit.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.errors import UserError
from attnlab.weights import folder
from attnlab.weights.folder import few

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Name:
    """A tensor and the parameters that it holds.

    Attributes:
      theirs: the tensor's name in a file.
      ours: the path of the parameter, or of several side by side.
      transposed: whether the axes of a matrix change places, and those of a window come first.
      beside: the path of a parameter without which this line does not count; where several heads
        have one of the same path.
      row: whether the tensor has one more axis in front, of one row.
    """

    theirs: str
    ours: str | tuple[str, ...]
    transposed: bool = False
    beside: str = ""
    row: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The parameters' paths."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours

    def into(self, tensor: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Splits a tensor of a file into the parameters that it holds, transposed and without its
        extra axis where this line says so.
        """
        tensor = np.moveaxis(tensor, (0, 1), (-1, -2)) if self.transposed else tensor
        tensor = tensor[0] if self.row else tensor
        ends = np.cumsum([shape[-1] for shape in shapes])[:-1]
        return np.split(tensor, ends, axis=-1) if len(shapes) > 1 else [tensor]

    def back(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """The tensor of these parameters."""
        joined = np.concatenate(parameters, axis=-1) if len(parameters) > 1 else parameters[0]
        joined = joined[None] if self.row else joined
        return np.moveaxis(joined, (-1, -2), (0, 1)) if self.transposed else joined

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """That of the tensor, given those of the parameters."""
        *rest, _ = shapes[0]
        joined = (*[1] * self.row, *rest, sum(shape[-1] for shape in shapes))
        return (*joined[:-3:-1], *joined[:-2]) if self.transposed else joined


def matrix(theirs: str, ours: str, transposed: bool = True) -> tuple[Name, Name]:
    """The lines of a layer W, b; those of torch are transposed."""
    return (
        Name(f"{theirs}.weight", f"{ours}/kernel", transposed),
        Name(f"{theirs}.bias", f"{ours}/bias"),
    )


def norm(theirs: str, ours: str) -> tuple[Name, Name]:
    """The lines of a norm of torch."""
    return Name(f"{theirs}.weight", f"{ours}/scale"), Name(f"{theirs}.bias", f"{ours}/bias")


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
        """Yields the table lines that apply to a system whose parameters have these shapes, with
        layer numbers filled in; raises `UserError` if a parameter has no line.

        Raises:
          UserError: parameters that the table has no name for.
        """
        left = set(shapes)
        numbered = []
        for name in self.names:
            for number in _numbers(name.paths[0], shapes):
                line = dataclasses.replace(
                    name,
                    theirs=name.theirs.replace("{i}", number),
                    ours=tuple(path.replace("{i}", number) for path in name.paths),
                )
                beside = name.beside.replace("{i}", number)
                if set(line.paths) <= left and (not beside or beside in shapes):
                    left -= set(line.paths)
                    numbered.append(line)
        if left:
            raise UserError(
                f"a model of this kind has no place for {few(sorted(left))}; it stands for another"
                " system than this one"
            )
        yield from numbered

    def read(
        self, where: Mapping[str, Path], shapes: Shapes, dtype: Any = np.float32
    ) -> dict[str, np.ndarray]:
        """Reads the parameters of a system from files, by path, as `dtype`; raises `UserError`
        unless the files have exactly their tensors, all finite.

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
            parts = line.into(tensor, [shapes[path] for path in line.paths])
            for path, part in zip(line.paths, parts, strict=True):
                parameters[path] = np.ascontiguousarray(part, dtype)
        return parameters

    def check(self, where: Mapping[str, Path], shapes: Shapes) -> dict[str, Name]:
        """Raises `UserError` unless the files have exactly the tensors of a system, in shape and
        type; returns the table line of each tensor, by its name there. Reads only headers, and the
        tensors that may be copies of others. Arguments and errors are those of `read`.
        """
        bare = bool(self.prefix) and not any(name.startswith(self.prefix) for name in where)
        file_names = {self.newer(f"{self.prefix if bare else ''}{name}"): name for name in where}
        lines = {file_names.get(line.theirs, line.theirs): line for line in self.lines(shapes)}
        dropped = {
            name
            for whole, name in file_names.items()
            if name not in lines and any(re.fullmatch(pattern, whole) for pattern in self.dropped)
        }
        self._compare(
            {name: file for name, file in where.items() if name not in dropped},
            {
                name: line.shape([shapes[path] for path in line.paths])
                for name, line in lines.items()
            },
        )
        return lines

    def write(self, parameters: Mapping[str, np.ndarray], dtype: Any) -> dict[str, np.ndarray]:
        """Converts parameters by path into the tensors of a file, by name, as `dtype`; raises
        `UserError` for one without a name, or beyond the range of `dtype`.

        Raises:
          UserError: parameters that the table has no name for, or that `dtype` cannot hold.
        """
        shapes = {path: array.shape for path, array in parameters.items()}
        return {
            line.theirs: folder.check_finite(
                line.back([parameters[path] for path in line.paths]), dtype, line.theirs
            )
            for line in self.lines(shapes)
        }

    def newer(self, name: str) -> str:
        """Returns the name of a tensor as files have it today."""
        for old, new in self.older.items():
            name = name.replace(old, new)
        return name

    def _compare(self, where: Mapping[str, Path], wanted: Shapes) -> None:
        """Raises `UserError`, with the names, unless the files have exactly the tensors and shapes
        of `wanted`; equal copies of tied tensors may be there too.
        """
        shapes = {name: shape for name, (shape, _) in folder.headers(where).items()}
        folder.check_floats({name: file for name, file in where.items() if name in wanted})
        extra = sorted(set(shapes) - set(wanted))
        for name in [name for name in extra if self.tied.get(name) in where]:
            first, second = (
                dict(folder.tensors({key: where[key]}))[key] for key in (name, self.tied[name])
            )
            if np.array_equal(first, second):
                extra.remove(name)
        misshapen = [
            f"{name} {list(shapes[name])} instead of {list(shape)}"
            for name, shape in wanted.items()
            if name in shapes and shapes[name] != shape
        ]
        missing = [name for name in wanted if name not in shapes]
        wrong = [
            f"{len(names)} {what}: {few(names)}"
            for what, names in (
                ("missing", missing),
                ("that the config does not have", extra),
                ("of another shape", misshapen),
            )
            if names
        ]
        if wrong:
            files = sorted({str(file) for file in where.values()})
            raise UserError(
                f"the tensors of {few(files)} are not those that config.json tells of; "
                + "; ".join(wrong)
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
    """Returns the layer numbers that `{i}` of a path has among these parameters, as texts in order;
    [""] for a path without `{i}`.
    """
    if "{i}" not in path:
        return [""]
    pattern = re.escape(path).replace(re.escape("{i}"), "([0-9]+)")
    matches = (re.fullmatch(pattern, candidate) for candidate in shapes)
    return sorted({match[1] for match in matches if match}, key=int)
