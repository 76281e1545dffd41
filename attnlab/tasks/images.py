"""The base of the tasks that read images alone: what follows from an image being one array of a fixed
size.

Mean and deviation are computed once and kept with the run; systems get normalised images. A batch
has the column "image", and another one that tells its rows from rows of padding (`real`).

Axis letters: B batch, H height, W width, C channels.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.batching import Batches, TrainBatches, evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Examples
from attnlab.data.images.augmentation import augmented, check_anywhere
from attnlab.data.images.folder import read_images
from attnlab.data.images.labelled import Pictures
from attnlab.data.learned import Shape
from attnlab.data.settings import Augmentation
from attnlab.errors import UserError
from attnlab.systems.protocol import AttentionMap, System
from attnlab.tasks import schemas
from attnlab.tasks.base import Config, Model, Task
from attnlab.tasks.maps import ImageExample, Overlays, gates_of, numbered
from attnlab.tasks.models import check_statistics, refuse_terms, shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Params, Sides, Tree, Typed

_CLASSES = 2  # of a system that is built to be checked; any number does
_LOOKED_AT = 1000  # images, to know whether an augmentation does anything
_AUGMENTATION = 2  # what is folded into the key of a step; 1 is for samples

Built = TypeVar("Built", bound=System)


def build_system(
    config: schemas.Settings, base: type[Built], classes: int, shape: Shape | None
) -> Built:
    """Builds the system of a config with `classes` outputs; raises `UserError` unless it is of the
    class `base`, keeps no batch statistics under microbatches and, if `shape` (H, W, C) is given,
    reads such images with attention that neither samples nor has a loss.

    Raises:
      UserError: another kind of system, images too small for it, attention that samples or has a
        loss, or statistics of batches with microbatches.
    """
    system: Built = system_factory(config, base)(classes=classes)
    if shape is not None:
        refuse_terms(config, shapes_of(system, jax.ShapeDtypeStruct((1, *shape), jnp.float32)))
    check_statistics(config, system, f"norms of system={config.system.name} have statistics of")
    return system


OfImages = TypeVar("OfImages", bound=Pictures[Any])


class ImageTask(Task[Config, OfImages, Model]):
    """Base of the tasks that read images alone. Not a task by itself."""

    loads: ClassVar[type[Pictures[Any]]]
    inputs = ("image",)
    examples: ClassVar[str] = "images"
    item: ClassVar[str] = "images"

    def __init__(self, config: Config, data: OfImages) -> None:
        learned = data.learned
        super().__init__(config, data, *self.built(config, len(learned.classes), learned.shape))

    @classmethod
    def built(cls, config: Config, classes: int, shape: Shape | None) -> tuple[Any, Any]:
        """The system of a config, and what is added to its loss; see `build_system`."""
        return build_system(config, cls.systems, classes, shape), None

    @classmethod
    def check(cls, config: Config) -> None:
        """Build the system, for the size of images where the source knows it, so that a bad config
        fails before data is read.
        """
        cls.built(config, _CLASSES, getattr(cls.loads.of_config(config.data), "shape", None))

    def real(self, batch: Batch) -> jax.Array:
        """Which rows of a batch are images and not padding, [B] bool."""
        raise NotImplementedError

    # --- training ---

    def init_inputs(self) -> list[jax.Array]:
        """See `Task.init_inputs`."""
        return [jnp.zeros((1, *self.data.learned.shape))]

    def apply(self, params: Params, batch: Batch, **options: Any) -> Tree:
        """What the system makes of the images of a batch, which are normalised first."""
        images = self.normalised(batch["image"])
        return self.system.apply({"params": params}, images, self.real(batch), **options)

    def normalised(self, images: jax.Array | np.ndarray) -> jax.Array:
        """Images [B,H,W,C], uint8, as systems get them: float32, by mean and deviation."""
        return self.data.learned.normalised(jnp.asarray(images))

    def augment(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """Arrays [B,H,W,C] of images, changed as `config.augmentation` says by the key of a step."""
        step_key = jax.random.fold_in(key, _AUGMENTATION)
        augmentation: Augmentation = self.config.augmentation  # type: ignore[attr-defined]
        return augmentation.call(augmented, step_key, images)

    def ordered(self, seed: int, shared: Mapping[str, Any]) -> Batches:
        """Returns the training batches of this process (`shared` has its index and the number of
        processes) in the order of the seed; raises `UserError` where `augmentation.anywhere` would
        move none of the first images.
        """
        examples = self.of_split("train")
        augmentation: Augmentation | None = getattr(self.config, "augmentation", None)
        if augmentation is not None and augmentation.anywhere:
            check_anywhere(examples["image"].block(np.arange(min(len(examples), _LOOKED_AT)), 0))
        return TrainBatches(
            examples,
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

    def read_files(self, lines: Sequence[str]) -> np.ndarray:
        """Images from files, a name a line, resized to those of training.

        Raises:
          UserError: a file that is no image, or images of training that have neither 1 nor 3
            channels.
        """
        return read_images(lines, self.data.learned.shape)

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """None: images have no length."""
        return []

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Images from files, see `read_files`."""
        return self.unlabelled(self.read_files(lines))

    @staticmethod
    def unlabelled(images: np.ndarray) -> Examples:
        """Examples of images [N,H,W,C] of which nothing is known."""
        raise NotImplementedError

    def map_examples(self, split: str, number: int) -> list[ImageExample]:
        """The first images of a split, named by their numbers."""
        return numbered(split, self.first_images(split, number))

    def first_images(self, split: str, number: int) -> np.ndarray:
        """The first images of a split, at most so many, [N,H,W,C] uint8."""
        return self.of_split(split)["image"].block(np.arange(min(number, self.size(split))), 1)

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> list[ImageExample]:
        """Reads the image files named in `typed`, pairs (file name, None), and returns each as an
        `ImageExample` labelled with the system's best answer; raises `UserError` if the second is a
        text, or a file no image.

        Raises:
          UserError: a second text, or a file that is no image.
        """
        for name, second in typed:
            if second is not None:
                raise UserError(
                    f"task={self.config.task} reads one image, not {second!r} beside {name!r}"
                )
        names = [name for name, _ in typed]
        images, answers = self.read_files(names), self.respond(params, names)
        return [
            ImageExample(name, image, best[0].text)
            for name, image, best in zip(names, images, answers, strict=True)
        ]

    def model_inputs(self, example: ImageExample) -> tuple[list[Any], Sides]:
        """The image, normalised; its places have numbers only."""
        return [self.normalised(example.image[None])], {}

    def overlays(self, params: Params, example: Any) -> Overlays:
        """The gates, and what `answer_maps` gives."""
        read, _ = self.model_inputs(example)
        maps, gates = gates_of(self.system, params, read, example.image)
        return {**maps, **self.answer_maps(params, example.image)}, gates

    def answer_maps(self, params: Params, image: np.ndarray) -> dict[str, AttentionMap]:
        """What the answer says of places of an image [H,W,C], by name; nothing by default."""
        return {}
