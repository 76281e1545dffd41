"""Parameters of one model as the first parameters of another: what happens to each.

    kept        path and shape are the same
    pooled      keys or values of K heads become those of fewer: head g is the mean of the K / G
                neighbours that its queries read before
    drawn       the source has no such parameter, or one of another shape: initialized as always
    left out    parameters of the source that the model does not have

Source of the mean: J. Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models
from Multi-Head Checkpoints", EMNLP 2023, section 2.1.

Axis letters: H heads, K key heads, D head width.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attnlab.weights.names import Shapes

POOLED = re.compile(r"(?P<module>.+)/w_(key|value)/(kernel|bias)")


@dataclasses.dataclass(frozen=True)
class Heads:
    """The heads of a mechanism: H, K and D."""

    queries: int
    keys: int
    width: int


@dataclasses.dataclass(frozen=True)
class Model:
    """The parameters of a model.

    Attributes:
      shapes: of its parameters, by path.
      heads: of its mechanisms, by path.
      vocabularies: the pieces of each of its vocabularies, in the order of their ids.
    """

    shapes: Shapes
    heads: Mapping[str, Heads]
    vocabularies: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Fit:
    """What happens to each parameter, by path.

    Attributes:
      kept, pooled, drawn, left_out: as above.
    """

    kept: tuple[str, ...]
    pooled: tuple[str, ...]
    drawn: tuple[str, ...]
    left_out: tuple[str, ...]

    def lines(self) -> list[str]:
        """Returns a line of text for each of the groups kept, pooled, drawn and left out that has
        parameters, with their number and paths; paths that differ only in the layer are joined.
        """
        groups = (
            ("kept", self.kept),
            ("pooled, heads of keys and values", self.pooled),
            ("drawn anew", self.drawn),
            ("left out", self.left_out),
        )
        return [
            f"pretrained: {len(paths)} parameters {fate}: {'; '.join(join_paths(paths))}"
            for fate, paths in groups
            if paths
        ]


def fit(source: Model, target: Model) -> Fit:
    """Returns a `Fit`, lists of paths: parameters of `target` that are kept (taken unchanged from
    `source`), pooled (averaged over its heads) or drawn anew, and those of `source` left out;
    decides by shapes, heads and vocabularies.

    Parameters with an axis as long as a vocabulary of the source are not kept if the target has
    other vocabularies, since their rows stand for other pieces.
    """
    other = source.vocabularies != target.vocabularies
    sizes = {len(vocabulary) for vocabulary in source.vocabularies}
    kept, pooled, drawn = [], [], []
    for path, shape in target.shapes.items():
        original = source.shapes.get(path)
        if original == shape and not (other and sizes & set(shape)):
            kept.append(path)
        elif original is not None and _can_pool(path, source, target):
            pooled.append(path)
        else:
            drawn.append(path)
    used = {*kept, *pooled}
    left_out = [path for path in source.shapes if path not in used]
    return Fit(tuple(kept), tuple(pooled), tuple(drawn), tuple(left_out))


def fit_parameters(
    parameters: Mapping[str, Any], initial: Mapping[str, Any], source: Model, target: Model
) -> dict[str, Any]:
    """Returns the target's first parameters by path: those of `parameters` (the source's, by path;
    as float32) where `fit` keeps them, averaged over heads where it pools them, else those of
    `initial`, where no others are needed.
    """
    plan = fit(source, target)
    values = {path: np.asarray(parameters[path], np.float32) for path in plan.kept}
    values |= {path: initial[path] for path in plan.drawn}
    for path in plan.pooled:
        heads = target.heads[_mechanism(path)]
        values[path] = pool_heads(np.asarray(parameters[path], np.float32), heads)
    return {path: values[path] for path in target.shapes}


def pool_heads(parameter: np.ndarray, heads: Heads) -> np.ndarray:
    """Averages neighbouring heads of a projection [..., K * D], or its bias, so that `heads.keys`
    heads remain.
    """
    *lead, size = parameter.shape
    grouped = parameter.reshape(*lead, heads.keys, size // heads.keys // heads.width, heads.width)
    return grouped.mean(axis=-2, dtype=np.float64).astype(parameter.dtype).reshape(*lead, -1)


def join_paths(paths: Iterable[str]) -> list[str]:
    """Returns a shorter list of the paths: paths that differ only in a number are joined,
    "layer_{0-3}/attention/out/kernel", and then those of the same module that differ only in the
    last part, "top/{scale,bias}".
    """
    numbers: dict[str, list[int]] = {}
    for path in paths:
        number = re.search(r"_(\d+)(?=/)", path)
        key = path if number is None else f"{path[: number.start()]}_{{}}{path[number.end() :]}"
        numbers.setdefault(key, []).extend([] if number is None else [int(number[1])])
    named = {key: key.replace("{}", _ranges(layers)) for key, layers in numbers.items()}
    by_module: dict[str, list[str]] = {}
    for path in named.values():
        module, _, last = path.rpartition("/")
        by_module.setdefault(module, []).append(last)
    return [
        f"{module}/{lasts[0] if len(lasts) == 1 else '{' + ','.join(lasts) + '}'}".removeprefix("/")
        for module, lasts in by_module.items()
    ]


def _ranges(numbers: list[int]) -> str:
    """Returns numbers as a text of ranges, such as "3", "{0-3}" or "{0,2,5-7}"."""
    runs = []
    for _, run in itertools.groupby(
        enumerate(sorted(numbers)), key=lambda numbered: numbered[1] - numbered[0]
    ):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return runs[0] if len(numbers) == 1 else "{" + ",".join(runs) + "}"


def _mechanism(path: str) -> str:
    """The path of the mechanism whose keys or values a parameter projects; "" for other parameters."""
    match = POOLED.fullmatch(path)
    return match["module"] if match else ""


def _can_pool(path: str, source: Model, target: Model) -> bool:
    """Returns whether the key or value heads of the projection at `path` can be averaged to those
    of the target: heads have the same width, query heads the same number, and the target's number
    of key heads divides the source's.
    """
    module = _mechanism(path)
    old, new = source.heads.get(module), target.heads.get(module)
    if old is None or new is None or old.width != new.width:
        return False
    *lead, last = source.shapes[path]
    fits = (*lead, last // old.keys * new.keys) == target.shapes[path]
    return fits and old.queries == new.queries and old.keys % new.keys == 0
