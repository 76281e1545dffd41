"""The attention maps of an example, and what lies over its image: maps whose keys are its places,
gates, and what an answer says of places.

Axis letters: B batch, H and W of the image, C channels, R rows that look, h and w of a grid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.decoding.rows import OnRows
from attnlab.layers.gates.protocol import COLLECTION, handed_out
from attnlab.systems.protocol import GLIMPSES, AttentionMap, System
from attnlab.tasks.protocol import Example, Params

if TYPE_CHECKING:
    from attnlab.tasks import AnyTask

Overlays = tuple[dict[str, AttentionMap], dict[str, np.ndarray]]
"""Maps over an image by name, and the gates of a pass as arrays."""

IMAGE = "image"
"""The side of a map whose positions are the places of an image, row by row."""
_WHOLE = "all places"  # the mean over the places that look


@dataclasses.dataclass(frozen=True)
class ImageExample:
    """An image of a task that reads images alone.

    Attributes:
      name: of a file, or its number in a split.
      image: [H,W,C] uint8.
      label: its class, or what a system says of it; None for nothing.
    """

    name: str
    image: np.ndarray
    label: str | None = None

    def shown(self) -> str:
        """See `attnlab.tasks.protocol.Example`."""
        return self.name if self.label is None else f"{self.name}  ->  {self.label}"

    def record(self) -> dict[str, Any]:
        """See `attnlab.tasks.protocol.Example`."""
        return {"source": self.name, "target": self.label}


def numbered(
    split: str, images: np.ndarray, labels: Sequence[str | None] | None = None
) -> list[ImageExample]:
    """Examples of the first images of a split [N,H,W,C], named by their numbers, with their labels."""
    names = (f"{split} image {row}" for row in range(1, len(images) + 1))
    every = zip(names, images, labels or [None] * len(images), strict=True)
    return [ImageExample(*example) for example in every]


def grid_of(places: int, height: int, width: int) -> tuple[int, int, int] | None:
    """Finds the grid (h, w) of square patches of an image [H,W], the last ones cut, that has
    `places` positions, maybe after one class token; returns (tokens before, h, w), or None if no
    grid fits.
    """
    for before in (0, 1):
        for side in range(1, max(height, width) + 1):
            h, w = -(-height // side), -(-width // side)
            if h * w == places - before:
                return before, h, w
    return None


def attention_maps(task: AnyTask, params: Params, example: Example) -> dict[str, AttentionMap]:
    """Returns every attention map [H,Tq,Tk] of an example by name, with labelled rows and columns;
    those of a side that the task does not label, and hops, are numbered.
    """
    inputs, sides = task.model_inputs(example)

    def labels(side: Any, count: int) -> Sequence[str]:
        if side == "hops":
            return [f"hop {number}" for number in range(1, count + 1)]
        return sides.get(side, [str(number) for number in range(count)])

    return {
        name: map_.replace(  # type: ignore[attr-defined]
            rows=labels(map_.rows, map_.weights.shape[-2]),
            columns=labels(map_.columns, map_.weights.shape[-1]),
        )
        for name, map_ in maps_of(task.system, params, inputs).items()
    }


def maps_of(system: System, params: Params, read: Sequence[Any]) -> dict[str, AttentionMap]:
    """Runs a system on one row of inputs and returns every attention map by name, on the host,
    [H,Tq,Tk] each, between the sides that the system names.
    """
    names: list[str] = []

    @OnRows
    def look(params: Params, *read: jax.Array) -> dict[str, AttentionMap]:
        _, collected = system.apply({"params": params}, *read, mutable=[MAPS])
        maps = system.maps(dict(collected).get(MAPS, {}))
        names[:] = maps  # a program would put them in another order
        return maps

    maps = jax.device_get(look(params, *read))
    return {name: maps[name].replace(weights=np.asarray(maps[name].weights[0])) for name in names}


def stored_labels(task: AnyTask, example: Example) -> dict[str, Sequence[str]]:
    """Returns the labels that are stored with the arrays of maps, by their names in the file; see
    `Task.stored_labels`.
    """
    _, sides = task.model_inputs(example)
    return {
        name: next((sides[side] for side in among if side in sides), ())
        for name, among in task.stored_labels.items()
    }


def overlays(
    task: AnyTask, params: Params, example: Example, maps: Mapping[str, AttentionMap]
) -> Overlays:
    """Returns (maps by name, gates) to draw over the image of an example: those of `maps` whose
    keys are places, averaged over heads and laid out on a grid, and those of `Task.overlays`, which
    also gives the gates; ({}, {}) without an image.
    """
    image = getattr(example, "image", None)
    if image is None:
        return {}, {}
    others, gates = task.overlays(params, example)
    return {**over_image(task.system, image, maps, task.grid), **others}, gates


def over_image(
    system: System,
    image: np.ndarray,
    maps: Mapping[str, AttentionMap],
    grid: tuple[int, int] | None = None,
) -> dict[str, AttentionMap]:
    """Returns the maps [heads,Tq,Tk] whose keys are places of the image, averaged over heads and
    laid out on a grid, [R,h,w]; the grid is the given one if it has as many places, else inferred.
    Where places look, the class token's row if there is one, and the mean over places.
    """
    over = {}
    for name, map_ in maps.items():
        query, key = system.between(name)
        places = map_.weights.shape[-1]
        fits = grid is not None and grid[0] * grid[1] == places
        laid_out = (0, *grid) if grid and fits else grid_of(places, *image.shape[:2])
        if key != IMAGE or laid_out is None:
            continue
        before, h, w = laid_out
        weights = np.asarray(map_.weights, np.float32).mean(axis=0)[:, before:]
        rows = list(map_.rows)
        if query == IMAGE:
            first = ["class token"] if len(weights) == h * w + 1 else []
            whole = weights[len(first) :].mean(axis=0, keepdims=True)
            weights, rows = np.concatenate([weights[: len(first)], whole]), [*first, _WHOLE]
        over[name] = AttentionMap(
            weights.reshape(len(weights), h, w), rows[: len(weights)], (), image
        )
    return over


def gates_of(system: System, params: Params, read: Sequence[Any], image: np.ndarray) -> Overlays:
    """Runs a system on one image and returns its gates as maps over the image, mean over channels,
    and as arrays. Maps are of those gates alone that differ between places, with what else the
    system has left to be drawn (`System.overlaid`); the arrays are of all gates, [h,w,C] each with
    1 for an axis that the gate does not depend on.
    """

    @OnRows
    def look(params: Params, *read: Any) -> dict[str, Any]:
        _, collected = system.apply({"params": params}, *read, mutable=[COLLECTION, GLIMPSES])
        return dict(collected)

    collected = jax.device_get(look(params, *read))
    gates = handed_out(collected.get(COLLECTION, {}))
    arrays = {name: np.asarray(g)[0] for name, g in gates.items()}
    over = {
        name: AttentionMap(g.mean(axis=-1)[None], ["mean"], (), image)
        for name, g in sorted(arrays.items())
        if g.shape[0] * g.shape[1] > 1
    }
    for name, (weights, rows) in system.overlaid(collected, *image.shape[:2]).items():
        over[name] = AttentionMap(np.asarray(weights, np.float32), rows, (), image)
    return over, arrays
