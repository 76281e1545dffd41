"""The base of the tasks that read images alone: what follows from an image being one array of a fixed
size.

Mean and deviation are computed once and kept with the run; systems get normalised images. A batch
has the column "image", and another one that tells its rows from rows of padding (`real`).

Axis letters: B batch, H height, W width, C channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.data.batching import Batches, TrainBatches, evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Examples
from attnlab.data.images.augmentation import augmented
from attnlab.data.images.folder import read_image
from attnlab.data.images.labelled import Pictures, Shape
from attnlab.errors import UserError
from attnlab.records.files import expanded
from attnlab.systems.protocol import System
from attnlab.tasks.base import Model, Task
from attnlab.tasks.models import maps_of, refuse_terms, shapes_of, system_factory
from attnlab.tasks.protocol import Axis, Batch, Example, Maps, Params, Tree, Typed

_AUGMENTATION = 2  # what is folded into the key of a step; 1 is for samples

Built = TypeVar("Built", bound=System)


def build_system(config: ConfigDict, base: type[Built], classes: int, shape: Shape | None) -> Built:
    """The system of a config, of the kind `base`, for images of this shape where that is known.

    Raises:
      UserError: another kind of system, images too small for it, attention that samples or has a
        loss, or statistics of batches with microbatches.
    """
    system: Built = system_factory(config, base)(classes=classes)
    if shape is not None:
        refuse_terms(config, shapes_of(system, jax.ShapeDtypeStruct((1, *shape), jnp.float32)))
    if system.over_batch and config.training.accumulate > 1:
        raise UserError(
            f"config.training.accumulate={config.training.accumulate}: norms of"
            f" system={config.system.name} have statistics of the whole batch, which is never there;"
            " set it to 1"
        )
    return system


OfImages = TypeVar("OfImages", bound=Pictures)


@dataclasses.dataclass(frozen=True)
class ImageExample:
    """An image of a split, by its number from 1, and its label where it has one."""

    split: str
    number: int
    label: str | None = None

    def shown(self) -> str:
        """See `Example`."""
        name = f"{self.split} image {self.number}"
        return name if self.label is None else f"{name}  ->  {self.label}"

    def record(self) -> dict[str, Any]:
        """See `Example`."""
        return {"source": f"{self.split} image {self.number}", "target": self.label}


class ImageTask(Task[OfImages, Model]):
    """Base of the tasks that read images alone. Not a task by itself."""

    inputs = ("image",)
    examples: ClassVar[str] = "images"

    def real(self, batch: Batch) -> jax.Array:
        """Which rows of a batch are images and not padding, [B] bool."""
        raise NotImplementedError

    # --- training ---

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters."""
        images = jnp.zeros((1, *self.data.learned.shape))
        params: Params = self.system.init(key, images)["params"]
        return params

    def apply(self, params: Params, batch: Batch, **how: Any) -> Tree:
        """What the system makes of the images of a batch, which are normalised first."""
        images = self.normalised(batch["image"])
        return self.system.apply({"params": params}, images, self.real(batch), **how)

    def normalised(self, images: jax.Array | np.ndarray) -> jax.Array:
        """Images [B,H,W,C], uint8, as systems get them: float32, by mean and deviation."""
        learned = self.data.learned
        mean, deviation = (np.asarray(one, np.float32) for one in (learned.mean, learned.deviation))
        return (jnp.asarray(images).astype(jnp.float32) / 255 - mean) / deviation

    def changed(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Arrays [B,H,W,C] of images, changed as `config.augmentation` says by the key of a step."""
        own = jax.random.fold_in(key, _AUGMENTATION)
        return augmented(own, images, **self.config.augmentation)

    def ordered(self, seed: int, shared: Mapping[str, Any]) -> Batches:
        """See `Task.ordered`; all images have one size."""
        return TrainBatches(
            self.of_split("train"),
            size=self.config.batch.size,
            unit="sentences",
            buckets=(),
            max_length=1,
            seed=seed,
            things=self.data.things,
            **shared,
        )

    # --- scores ---

    def in_order(self, examples: Examples) -> list[tuple[np.ndarray, HostBatch]]:
        """See `Task.in_order`."""
        return evaluation_batches(examples, size=self.at_once, buckets=(1,))

    # --- answers and maps ---

    def files(self, lines: Sequence[str]) -> np.ndarray:
        """Images from files, a name a line, resized to those of training.

        Raises:
          UserError: a file that is no image, or images of training that have another form than
            files are resized to.
        """
        height, width, channels = self.data.learned.shape
        if height != width or channels not in (1, 3):
            raise UserError(
                f"images of {height} x {width} x {channels} are not made of files; expected square"
                " ones with 1 or 3 channels in training"
            )
        return np.stack(
            [read_image(expanded(line.strip()), height, channels == 1) for line in lines]
        )

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """None: images have no length."""
        return []

    def pictured(self, split: str, number: int) -> list[ImageExample]:
        """The first images of a split, named by their numbers."""
        count = min(number, self.size(split))
        return [ImageExample(split, row) for row in range(1, count + 1)]

    def completed(self, params: Params, typed: Sequence[Typed]) -> list[ImageExample]:
        """Refused: 'inspect' takes texts.

        Raises:
          UserError: always.
        """
        raise UserError(f"task={self.config.task} draws no maps of images; leave out 'inspect'")

    def maps(self, params: Params, example: Example) -> Maps:
        """Every attention map of an image of a split; what they lie between has numbers: places of
        the image in reading order, queries. Of maps with another number of places than the first
        there are no labels, and they are left out.
        """
        assert isinstance(example, ImageExample)
        image = self.of_split(example.split)["image"].block(np.array([example.number - 1]), 1)
        axes: dict[str, Axis] = {}
        kept = {}
        for name, one in maps_of(self.system, params, [np.asarray(self.normalised(image))]).items():
            for side, size in zip((one.query, one.key), one.weights.shape[-2:], strict=True):
                axes.setdefault(side, Axis([str(place) for place in range(1, size + 1)], "places"))
            if all(
                len(axes[side].labels) == size
                for side, size in zip((one.query, one.key), one.weights.shape[-2:], strict=True)
            ):
                kept[name] = one
        return Maps(kept, axes, self.stored(axes))
