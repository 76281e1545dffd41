"""What lies over an image: attention weights whose keys are its places, and gates.

Axis letters: B batch, H and W of the image, C channels, R rows that look, h and w of a grid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from attnlab.decoding.rows import OnRows
from attnlab.layers.gates.protocol import COLLECTION, handed_out
from attnlab.systems.protocol import GLIMPSES, AttentionMap, System
from attnlab.tasks.protocol import Axis, Look, Maps, Params

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


def grid_of(places: int, height: int, width: int) -> tuple[int, int, int] | None:
    """Tokens before the first place, and h and w, of so many keys of an image [H,W]: a grid that
    divides it into squares, the last ones cut, or the same after a class token. None if no grid
    has so many places.
    """
    for before in (0, 1):
        for side in range(1, max(height, width) + 1):
            h, w = -(-height // side), -(-width // side)
            if h * w == places - before:
                return before, h, w
    return None


def maps_over(
    weights: Mapping[str, AttentionMap],
    axes: Mapping[str, Axis],
    labels: Mapping[str, Sequence[str]],
    image: np.ndarray | None,
) -> Maps:
    """The maps of an example with their axes, rows of hops numbered, with those over its image."""
    hops = (look.weights.shape[1] for look in weights.values() if look.query == "hops")
    numbers = range(1, max(hops, default=0) + 1)
    sides = {**axes, "hops": Axis([f"hop {number}" for number in numbers], "hops")}
    looks = {} if image is None else over_image(image, weights, sides)
    return Maps(weights, sides, labels, looks)


def over_image(
    image: np.ndarray, maps: Mapping[str, AttentionMap], axes: Mapping[str, Axis]
) -> dict[str, Look]:
    """The maps [heads,Tq,Tk] whose keys are places of the image, the mean over their heads; their
    grid is that of the axis, or follows from their number. Where
    places look, the class token's row if there is one, and the mean over places.
    """
    looks = {}
    for name, look in maps.items():
        size = axes[look.key].grid if look.key in axes else None
        fits = size is not None and size[0] * size[1] == look.weights.shape[-1]
        grid = (0, *size) if size and fits else grid_of(look.weights.shape[-1], *image.shape[:2])
        if look.key != IMAGE or grid is None:
            continue
        before, h, w = grid
        weights = np.asarray(look.weights, np.float32).mean(axis=0)[:, before:]
        rows: Sequence[str] = list(map(str, range(len(weights))))
        rows = axes[look.query].labels if look.query in axes else rows
        if look.query == IMAGE:
            first = ["class token"] if len(weights) == h * w + 1 else []
            whole = weights[len(first) :].mean(axis=0, keepdims=True)
            weights, rows = np.concatenate([weights[: len(first)], whole]), [*first, _WHOLE]
        looks[name] = Look(image, weights.reshape(len(weights), h, w), list(rows)[: len(weights)])
    return looks


def gates_of(
    system: System, params: Params, read: Sequence[Any], image: np.ndarray
) -> tuple[dict[str, Look], dict[str, np.ndarray]]:
    """The gates of a pass over one image: those that differ from place to place, the mean over
    channels; with them what else the system has left to be drawn (`System.overlaid`); and all gates as
    arrays, [h,w,C] each with 1 for an axis that the gate does not depend on.
    """

    @OnRows
    def look(params: Params, *read: Any) -> dict[str, Any]:
        _, collected = system.apply({"params": params}, *read, mutable=[COLLECTION, GLIMPSES])
        return dict(collected)

    collected = jax.device_get(look(params, *read))
    gates = handed_out(collected.get(COLLECTION, {}))
    arrays = {name: np.asarray(g)[0] for name, g in gates.items()}
    looks = {
        name: Look(image, g.mean(axis=-1)[None], ["mean"])
        for name, g in sorted(arrays.items())
        if g.shape[0] * g.shape[1] > 1
    }
    for name, (weights, rows) in system.overlaid(collected, *image.shape[:2]).items():
        looks[name] = Look(image, np.asarray(weights, np.float32), rows)
    return looks, arrays
