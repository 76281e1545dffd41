"""The attention maps of an example, and what lies over its image: maps whose keys are its places,
gates, and what an answer says of places.

Axis letters: B batch, H and W of the image, C channels, R rows that look, h and w of a grid.
"""

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.mixer import MAPS, Kind
from attnlab.decoding.rows import OnRows
from attnlab.errors import UserError
from attnlab.layers.gates.protocol import COLLECTION, handed_out
from attnlab.layers.sensitivity import sensitivity
from attnlab.systems.protocol import GLIMPSES, AttentionMap, System
from attnlab.systems.vision.protocol import VisualAnswerer
from attnlab.tasks.protocol import Example, Params

if TYPE_CHECKING:
    from attnlab.tasks import AnyTask

Maps = dict[str, AttentionMap]
MapProgram = Callable[[Params, Sequence[Any]], Maps]
"""Of parameters and one row of inputs, the maps [H,Tq,Tk] of a pass by name."""
Overlays = tuple[Maps, dict[str, np.ndarray]]
"""Maps over an image by name, and the gates of a pass as arrays."""

IMAGE = "image"
"""The side of a map whose positions are the places of an image, row by row."""
WIDTH = 16  # tokens: texts of `maps_of_examples` are filled up to a multiple of it
_OF_SYSTEM = "sensitivity_to/"  # before the side, in names of `sensitivities`
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


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Which maps of a pass are computed; the others are left out of its program, and need no memory.

    Attributes:
      names: patterns of names ("decoder_*/cross_attention"), of which a map has one.
      heads: numbers of heads, of each map; None for all.
      rows: numbers of queries, of each map; None for all.
      kinds: see `attnlab.attention.mixer.Kind`. A sensitivity costs many backward passes of a layer.
    """

    names: Sequence[str] = ("*",)
    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    kinds: Sequence[Kind] = ("exact", "effective", "sensitivity")

    def among(self, maps: Mapping[str, AttentionMap]) -> Maps:
        """Returns those of `maps` whose name and kind are chosen, cut to the chosen heads and rows;
        raises `UserError` if no map has such a name, or a map no such head or row."""
        for pattern in self.names:
            if maps and not fnmatch.filter(maps, pattern):
                raise UserError(f"no map fits {pattern!r}; there are {', '.join(maps)}")
        named = {
            name: map_
            for name, map_ in maps.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)
        }
        return {
            name: self._narrow(name, map_)
            for name, map_ in named.items()
            if map_.kind in self.kinds
        }

    def _narrow(self, name: str, map_: AttentionMap) -> AttentionMap:
        weights = map_.weights
        for axis, word, numbers in ((1, "head", self.heads), (2, "row", self.rows)):
            if numbers is None:
                continue
            count = weights.shape[axis]
            if wrong := [number for number in numbers if not 0 <= number < count]:
                raise UserError(f"{name} has no {word} {wrong[0]}; {word}s are 0 to {count - 1}")
            weights = weights.take(np.array(numbers, np.int32), axis)
        return dataclasses.replace(map_, weights=weights)


EVERY_MAP = Chosen()
CHEAP_MAPS = Chosen(kinds=("exact", "effective"))  # a sensitivity takes many passes


def attention_maps(
    task: "AnyTask", params: Params, example: Example, chosen: Chosen = EVERY_MAP
) -> Maps:
    """Returns the chosen attention maps [H,Tq,Tk] of an example by name, with labelled rows and
    columns; those of a side that the task does not label, and hops, are numbered; raises `UserError`
    as `Chosen.among` does.
    """
    inputs, sides = task.model_inputs(example)
    return _labelled(maps_of(task.system, params, inputs, chosen), sides, chosen.rows)


def maps_of_examples(
    task: "AnyTask", params: Params, examples: Iterable[Example], maps_for: MapProgram
) -> Iterator[Maps]:
    """Yields for each example a dict of its labelled `AttentionMap`s [H,Tq,Tk] by name, those that
    the program `maps_for` gives; texts are read with padding to a multiple of `WIDTH` tokens, so
    that few programs are compiled, and the maps are without it.

    Args:
      task: with its system.
      params: of the system.
      examples: of the task.
      maps_for: of `map_program`, for maps with all their rows.
    """
    system, limit = task.system, task.config.longest_text
    for example in examples:
        inputs, sides = task.model_inputs(example)
        texts = [np.asarray(x) for x in inputs]
        if all(x.ndim != 3 for x in texts):  # no distances between tokens
            first = len(texts) - 1 if system.map_sides[1] == "joined" else 0
            for at, ids in enumerate(texts):
                width = -(-ids.shape[1] // WIDTH) * WIDTH
                room = min(width, limit or width) - ids.shape[1]
                if ids.ndim == 2 and at >= first and room > 0:
                    texts[at] = np.pad(ids, ((0, 0), (0, room)), constant_values=system.pad_id)
        maps = maps_for(params, texts)
        for name, map_ in maps.items():
            rows, columns = (len(sides.get(str(side), ())) for side in (map_.rows, map_.columns))
            cut = map_.weights[:, : rows or None, : columns or None]
            maps[name] = dataclasses.replace(map_, weights=cut)
        yield _labelled(maps, sides)


def _labelled(maps: Maps, sides: Mapping[str, Any], chosen: Sequence[int] | None = None) -> Maps:
    """Returns `maps` with the labels of their rows and columns: "hop 1" and so on for the side
    "hops", else those in `sides` for the side, else numbers from 0; of rows only the labels at the
    indices `chosen` (None for all).
    """

    def labels(side: Any, count: int) -> Sequence[str]:
        if side == "hops":
            return [f"hop {number}" for number in range(1, count + 1)]
        return sides.get(side, [str(number) for number in range(count)])

    labelled = {}
    for name, map_ in maps.items():
        rows = labels(map_.rows, map_.weights.shape[-2] if chosen is None else 1 + max(chosen))
        labelled[name] = dataclasses.replace(
            map_,
            rows=rows if chosen is None else [rows[number] for number in chosen],
            columns=labels(map_.columns, map_.weights.shape[-1]),
        )
    return labelled


def maps_of(
    system: System, params: Params, read: Sequence[Any], chosen: Chosen = EVERY_MAP
) -> Maps:
    """Runs a system on one row of inputs and returns the chosen maps by name, on the host, [H,Tq,Tk]
    each, between the sides that the system names. Of a system without any, those of
    `sensitivities`.

    Raises:
      UserError: see `Chosen.among`.
    """
    return map_program(system, chosen)(params, read)


def map_program(system: System, chosen: Chosen = EVERY_MAP) -> MapProgram:
    """Returns a function of parameters and one row of inputs that gives {name: `AttentionMap`} of
    the chosen maps, with weights [H,Tq,Tk] on the host; inputs of equal shapes compile it once.
    """
    names: list[str] = []

    @OnRows
    def look(params: Params, *read: jax.Array) -> Maps:
        maps = chosen.among(recorded(system, params, read))
        names[:] = maps  # a program would put them in another order
        return maps

    def maps_for(params: Params, read: Sequence[Any]) -> Maps:
        maps = jax.device_get(look(params, *read))
        return {
            name: dataclasses.replace(maps[name], weights=np.asarray(maps[name].weights[0]))
            for name in names
        }

    return maps_for


def map_shapes(task: "AnyTask", chosen: Chosen = EVERY_MAP) -> Maps:
    """Returns the chosen maps by name with the shapes of their weights alone, of a pass over the
    shortest inputs that is traced and not run; raises `UserError` as `Chosen.among` does.
    """

    def passing(params: Params, *read: Any) -> Maps:
        return chosen.among(recorded(task.system, params, read))

    return jax.eval_shape(passing, task.shapes, *task.init_inputs())  # type: ignore[no-any-return]


def recorded(system: System, params: Params, read: Sequence[jax.Array]) -> Maps:
    """Returns every map [1,H,Tq,Tk] of a pass over one row by name, for a program: those that the
    system records, or, if it records none, its `sensitivities`.
    """
    _, collected = system.apply({"params": params}, *read, mutable=[MAPS])
    maps = system.maps(dict(collected).get(MAPS, {}))
    return maps or sensitivities(system, params, read)


def sensitivities(system: System, params: Params, read: Sequence[jax.Array]) -> Maps:
    """Returns by "sensitivity_to/SIDE" `AttentionMap`s [1,1,n,S] that say how much each output of a
    system without attention and mixers depends on each token, place or pixel that it reads:

        S_ij = || d y_i / d e_j ||        e_j: the embedding of token j, or the channels of pixel j
                                          y_i: the largest of the logits at position i

    What gives one answer for all has one row, "hops"; the y of logits of pixels is the mean over
    these. Source for y: K. Simonyan, A. Vedaldi, A. Zisserman, "Deep Inside Convolutional Networks",
    2014, section 3.

    Args:
      read: one row of each input of the system, images [1,H,W,C] and ids [1,S].
    """
    shapes: list[jax.Array] = []

    def largest(moved: tuple[Any, Any]) -> jax.Array:
        """y [1,n,1], with numbers added to the images and to the embeddings, call after call."""
        of_images, of_calls = moved[0], list(moved[1])

        def embedded(call: Any, given: Any, named: Any, context: Any) -> Any:
            out = call(*given, **named)
            if not isinstance(context.module, nn.Embed) or context.method_name != "__call__":
                return out
            shapes.append(out)
            return out + of_calls.pop(0) if of_calls else out

        given = [x + of_images.get(at, 0) for at, x in enumerate(read)]
        with nn.intercept_methods(embedded):
            logits = jax.tree.leaves(system.apply({"params": params}, *given))[0]
        tops = logits.max(axis=-1)
        return tops[..., None] if tops.ndim == 2 else tops.reshape(1, -1).mean(1)[None, None]

    jax.eval_shape(largest, ({}, []))
    images = {at: jnp.zeros_like(x) for at, x in enumerate(read) if x.ndim > 2}
    embeddings = [jnp.zeros(out.shape, out.dtype) for out in shapes]
    of_images, of_calls = sensitivity(largest, (images, embeddings))
    texts = iter([text[None] for of_call in of_calls for text in of_call])  # one call may embed two
    second = "question" if isinstance(system, VisualAnswerer) else "target_in"
    joined = system.map_sides[1] == "joined"
    by_side: dict[str, jax.Array] = {}
    for at, x in enumerate(read):
        if at in of_images:
            by_side[IMAGE] = of_images[at].reshape(*of_images[at].shape[:2], -1)
        elif (norms := next(texts, None)) is not None:
            side = "joined" if joined else second if at else "source"
            by_side[side] = norms if joined else norms[..., : x.shape[1]]
    rows = system.map_sides[0]
    return {
        f"{_OF_SYSTEM}{side}": AttentionMap(
            norms[:, None], "hops" if norms.shape[1] == 1 else rows, side, kind="sensitivity"
        )
        for side, norms in by_side.items()
    }


def sides_of(system: System, name: str) -> tuple[str, str]:
    """Returns the sides of the queries and keys of a map of `maps_of`, by its name."""
    if name.startswith(_OF_SYSTEM):
        return system.map_sides[0], name.removeprefix(_OF_SYSTEM)
    return system.between(name)


def stored_labels(task: "AnyTask", example: Example) -> dict[str, Sequence[str]]:
    """Returns the labels that are stored with the arrays of maps, by their names in the file: those
    of the first side listed that the example has, else (); see `Task.stored_labels`.
    """
    _, sides = task.model_inputs(example)
    return {
        name: next((sides[side] for side in among if side in sides), ())
        for name, among in task.stored_labels.items()
    }


def overlays(
    task: "AnyTask", params: Params, example: Example, maps: Mapping[str, AttentionMap]
) -> Overlays:
    """Returns two dicts by name, `AttentionMap`s to draw over the image of an example and arrays of
    gates: those of `maps` whose keys are places, averaged over heads and laid out on a grid, and
    what `Task.overlays` gives; ({}, {}) without an image.
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
) -> Maps:
    """Returns those of `maps` [heads,Tq,Tk] whose keys are places of the image, as `AttentionMap`s
    averaged over heads and laid out on a grid, [R,h,w]; the grid is the given one if it has as many
    places, else inferred. Where places look, the class token's row if there is one, and the mean
    over places.
    """
    over = {}
    for name, map_ in maps.items():
        query, key = sides_of(system, name)
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
            weights.reshape(len(weights), h, w), rows[: len(weights)], (), image, map_.kind
        )
    return over


def gates_of(system: System, params: Params, read: Sequence[Any], image: np.ndarray) -> Overlays:
    """Runs a system on its inputs `read`, of one image, and returns two dicts by name: its gates as
    `AttentionMap`s over the image, mean over channels, and as arrays [h,w,C]. Maps are of those
    gates alone that differ between places, with what else the system has left to be drawn
    (`System.overlaid`); the arrays are of all gates, with 1 for an axis that the gate does not
    depend on.
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
