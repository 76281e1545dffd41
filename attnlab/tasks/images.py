"""The base of the tasks that read images alone, which follows from an image being one array of a fixed
size, and classification of images: cross-entropy, accuracy, and how often each class got each
answer.

    x      = (image / 255 - mean) / deviation        of each channel, over the training split
    loss   = mean over images of -log softmax(system(x))_label          of classification

Mean and deviation are computed once and kept with the run; with weights of another model they are
that model's. Systems get normalised images, which in training are changed first, as
`config.augmentation` says, by numbers that follow from seed and step. A batch has the column
"image", and another one that tells its rows from rows of padding (`real`): in classification
`label`, k + 1 for class k and 0 for a row of padding.

Axis letters: B batch, H height, W width, C channels or classes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab import weights
from attnlab.config.registry import build
from attnlab.data import SOURCES
from attnlab.data.batching import Batches, TrainBatches, evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Declared, Examples
from attnlab.data.images.annotated import ImageData, Pictures
from attnlab.data.images.augmentation import augmented, check_anywhere
from attnlab.data.images.files import ImageFolder, read_images
from attnlab.data.learned import Learned, Shape
from attnlab.data.settings import Augmentation
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import AttentionMap
from attnlab.systems.vision.protocol import ImageClassifier
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Decisions
from attnlab.tasks.base import Config, Model, Task
from attnlab.tasks.classification import Choosing, choice_rows, choice_sums, confusion
from attnlab.tasks.maps import ImageExample, Overlays, gates_of, numbered
from attnlab.tasks.models import check_statistics, refuse_terms, shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Loss, Params, Scores, Sides, Smoothing, Sums, Tree, Typed
from attnlab.tasks.tokens import cross_entropy

_CLASSES = 2  # of a system that is built to be checked; any number does
_LOOKED_AT = 1000  # images, to know whether an augmentation does anything
_AUGMENTATION = 2  # what is folded into the key of a step; 1 is for samples

OfImages = TypeVar("OfImages", bound=Pictures[Any])


def augment(augmentation: Augmentation, key: jax.Array, images: jax.Array) -> jax.Array:
    """Returns arrays [B,H,W,C] of images, changed as `config.augmentation` says by the key of a step."""
    return augmentation.call(augmented, jax.random.fold_in(key, _AUGMENTATION), images)


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
        """Builds the system of a config with `classes` outputs, and what is added to its loss; raises
        `UserError` unless it is of the class `systems`, keeps no batch statistics under
        microbatches and, if `shape` (H, W, C) is given, reads such images with attention that
        neither samples nor has a loss.

        Raises:
          UserError: another kind of system, images too small for it, attention that samples or has
            a loss, or statistics of batches with microbatches.
        """
        system = system_factory(config, cls.systems)(classes=classes)
        if shape is not None:
            refuse_terms(config, shapes_of(system, jax.ShapeDtypeStruct((1, *shape), jnp.float32)))
        check_statistics(config, system, f"norms of system={config.system.name} have statistics of")
        return system, None

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


def _pretrained(config: schemas.ImageClassification) -> Learned | None:
    """Reads, as `Learned`, the classes and the shape, mean and deviation of images of the model
    whose weights training begins with; None without such a model, or if its folder is gone or does
    not have them.
    """
    folder = config.pretrained.path
    if folder is None or not folder.exists():
        return None
    if config.pretrained.run:
        return Learned.load(folder, ImageData.parts) if ImageData.saved(folder) else None
    read = weights.pictures(folder)
    names = ("classes", "shape", "mean", "deviation")
    return None if read is None else Learned(**{name: getattr(read, name) for name in names})


class ImageClassification(
    ImageTask[schemas.ImageClassification, ImageData, ImageClassifier],
    Choosing[schemas.ImageClassification, ImageData, ImageClassifier],
):
    """Images to one of several classes; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/image_classification.py`.
      data: the images and their classes.
      system: the model.
    """

    systems: ClassVar[type[ImageClassifier]] = ImageClassifier
    schema = schemas.ImageClassification
    loads = ImageData
    columns: ClassVar[Mapping[str, Declared]] = {
        "image": Declared("uint8", ("H", "W", "C")),
        "label": Declared("int32"),
    }
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="nats per image"),
        "accuracy": share("images", unit="share of labels right"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {"loss": ("loss", "rows"), "accuracy": ("correct", "rows")}
    units: ClassVar[Mapping[str, str]] = {"confusion": "label \\ answer"}
    outputs: ClassVar[str] = "predictions.tsv"

    @classmethod
    def built(
        cls, config: schemas.ImageClassification, classes: int, shape: Shape | None
    ) -> tuple[ImageClassifier, Decisions | None]:
        """Builds the system of a config with `classes` outputs, checked for images of this shape if
        it is not None, and the loss that trains its sampled decisions (None if it takes none, or
        without a shape).

        Raises:
          UserError: another kind of system, images too small for it, attention that samples or has
            a loss.
        """
        system: ImageClassifier = system_factory(config, ImageClassifier)(classes=classes)
        if shape is None:
            return system, None
        shapes = shapes_of(system, jax.ShapeDtypeStruct((1, *shape), jnp.float32))
        if Decisions.needed_by(shapes):
            return system, Decisions(config.decisions)
        refuse_terms(config, shapes)
        return system, None

    @classmethod
    def read(
        cls, config: schemas.ImageClassification, workdir: Path | None, splits: Sequence[str]
    ) -> ImageData:
        """Reads the images of `splits` as `ImageData`; mean, deviation and classes are those saved
        in `workdir`, else of the pretrained model (if not all its weights are taken no classes, and
        nothing if its channels differ in number), else of the training split. See `Task.read`.

        Raises:
          UserError: unreadable data, or what was learned of it is damaged, or a folder of weights
            that does not say what they read.
        """
        earlier = None if workdir is not None and ImageData.saved(workdir) else _pretrained(config)
        if earlier is None or config.pretrained.take == "all":
            return ImageData.load(config.data, None, workdir, splits, pretrained=earlier)
        data = super().read(config, workdir, splits)
        if len(earlier.mean) != data.learned.shape[2]:
            return data
        learned = dataclasses.replace(data.learned, mean=earlier.mean, deviation=earlier.deviation)
        return dataclasses.replace(data, learned=learned)

    # --- training ---

    def real(self, batch: Batch) -> jax.Array:
        """See `ImageTask.real`."""
        return jnp.asarray(batch["label"]) > 0

    def loss(self, params: Params, batch: Batch, key: jax.Array, **options: Any) -> Loss:
        """See `Task.loss`, of images changed as `config.augmentation` says; sums "tokens", "rows"
        and "correct" beside it.
        """
        images = augment(self.config.augmentation, key, jnp.asarray(batch["image"]))
        return super().loss(params, {**batch, "image": images}, key, **options)

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Computes sums over the images of a batch, from logits [B,C]: "loss", "rows", "correct";
        and "tokens", what is read: an image is one.
        """
        sums = choice_sums(outputs, jnp.asarray(batch["label"]), smoothing)
        sums["tokens"] = sums.pop("known")
        return sums

    def auxiliary_inputs(self, outputs: jax.Array, batch: Batch) -> dict[str, Tree]:
        """Returns the arguments of `auxiliary` by name: "reward" [B], 1 for a right answer and else
        0, or the log-likelihood of the label, as `config.decisions` says, and "real" [B], the rows
        that are images. See `Task.auxiliary_inputs`.
        """
        label, logits = jnp.asarray(batch["label"]), outputs.astype(jnp.float32)
        if self.config.decisions.reward == "right":
            reward = (logits.argmax(axis=-1) == label - 1).astype(jnp.float32)
        else:
            reward = -cross_entropy(logits, jnp.maximum(label - 1, 0), 0.0)
        return {"reward": reward, "real": label > 0}

    # --- scores ---

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: {"confusion": a table of how often each label (row) got each answer
        (column)}, and a list with a line "label TAB answer" for every image of the split.
        """
        names = self.data.learned.classes
        answers = self.outputs_of(params, self.of_split(split)).argmax(axis=1)
        pairs = [
            (names[label], names[answer])
            for label, answer in zip(self.data.labels(split), answers, strict=True)
        ]
        return {"confusion": confusion(pairs, names)}, ["\t".join(pair) for pair in pairs]

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every image: its loss, and whether it is right."""
        logits, classes = self.outputs_of(params, self.of_split(split)), self.data.labels(split)
        return Items.of(choice_rows(logits, classes, np.ones(len(classes))))

    # --- answers and maps ---

    def read_files(self, lines: Sequence[str]) -> np.ndarray:
        """See `ImageTask.read_files`; cut as the folders of training are."""
        source = build(SOURCES, self.config.data, "config.data")()
        fitted = source.fitted if isinstance(source, ImageFolder) else np.asarray
        return read_images(lines, self.data.learned.shape, fitted)

    @staticmethod
    def unlabelled(images: np.ndarray) -> Examples:
        """See `ImageTask.unlabelled`; 1 says that a row is an image, and nothing reads which class."""
        return Examples(image=images, label=np.ones(len(images), np.int32))

    def map_examples(self, split: str, number: int) -> list[ImageExample]:
        """See `ImageTask.map_examples`; with their labels."""
        labels = [self.classes[label] for label in self.data.labels(split)[:number]]
        return numbered(split, self.first_images(split, number), labels)
