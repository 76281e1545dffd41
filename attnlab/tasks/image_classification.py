"""Classification of images: cross-entropy, accuracy, and how often each class got each answer.

    x      = (image / 255 - mean) / deviation        of each channel, over the training split
    loss   = mean over images of -log softmax(system(x))_label

Mean and deviation are computed once and kept with the run; with weights of another model they are
that model's. In training images are changed first, as
`config.augmentation` says, by numbers that follow from seed and step. `label` is k + 1 for class k
and 0 for a row of padding.

Axis letters: B batch, H height, W width, C classes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab import weights
from attnlab.config import image_tasks, nodes
from attnlab.data.batching import Batches, TrainBatches, evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Declared, Examples
from attnlab.data.images import labelled
from attnlab.data.images.augmentation import augmented
from attnlab.data.images.folder import read_image
from attnlab.data.images.labelled import ImageData, Learned
from attnlab.errors import UserError
from attnlab.records.files import expanded
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import ImageClassifier
from attnlab.tasks.base import Task
from attnlab.tasks.looks import ImageExample, gates_of, over_image
from attnlab.tasks.models import refuse_terms, shapes_of, system_factory
from attnlab.tasks.pretrained import is_run
from attnlab.tasks.protocol import (
    Axis,
    Batch,
    Maps,
    Params,
    Response,
    Scores,
    Smoothing,
    Sums,
    Totals,
    Tree,
    Typed,
)
from attnlab.tasks.tokens import cross_entropy

_AUGMENTATION = 2  # what is folded into the key of a step; 1 is for samples


def _told(config: ConfigDict) -> Learned | None:
    """What the folder of weights that training begins with knows of images; None for none, and for
    one that has gone.
    """
    said = config.get("pretrained", {}).get("folder", "")
    folder = Path(said).expanduser()
    if not said or not folder.exists():
        return None
    if is_run(folder):
        return Learned.load(folder) if ImageData.saved(folder) else None
    read = weights.pictures(folder)
    return None if read is None else Learned(read.classes, read.shape, read.mean, read.deviation)


def build_system(config: ConfigDict, classes: int, shape: labelled.Shape | None) -> ImageClassifier:
    """The system of a config, for images of this shape where that is known.

    Raises:
      UserError: another kind of system, images too small for it, attention that samples or has a
        loss.
    """
    system: ImageClassifier = system_factory(config, ImageClassifier)(classes=classes)
    if shape is not None:
        images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        refuse_terms(config, shapes_of(system, images))
    return system


class ImageClassification(Task[ImageData, ImageClassifier]):
    """Images to one of several classes; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/image_classification.py`.
      data: the images and their classes.
      system: the model.
    """

    systems: ClassVar[type[ImageClassifier]] = ImageClassifier
    schema: ClassVar[type[nodes.AnyRun]] = image_tasks.ImageClassification
    reads: ClassVar[str] = "images"
    loads = ImageData
    columns: ClassVar[Mapping[str, Declared]] = {
        "image": Declared("uint8", ("H", "W", "C")),
        "label": Declared("int32"),
    }
    inputs = ("image",)
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0),
        "accuracy": share("images"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    units: ClassVar[Mapping[str, str]] = {
        "loss": "nats per image",
        "accuracy": "share of labels right",
        "confusion": "label \\ answer",
    }
    examples: ClassVar[str] = "images"
    outputs: ClassVar[str] = "predictions.tsv"
    item: ClassVar[str] = "images"

    def __init__(self, config: ConfigDict, data: ImageData) -> None:
        learned = data.learned
        super().__init__(config, data, build_system(config, len(learned.classes), learned.shape))
        self._outputs = jax.jit(lambda params, batch: self.apply(params, batch).astype(jnp.float32))

    @classmethod
    def check(cls, config: ConfigDict) -> None:
        """Build the system, for the size of images where the source knows it, so that a bad config
        fails before data is read.
        """
        source = labelled.source(config.data)
        build_system(config, 2, getattr(source, "shape", None))

    @classmethod
    def read(cls, config: ConfigDict, workdir: Path | None, splits: Sequence[str]) -> ImageData:
        """See `Task.read`. A run that begins with the weights of another model normalises images as
        that does; if it takes all of them, its classes are those of that model.

        Raises:
          UserError: unreadable data, or what was learned of it is damaged, or a folder of weights
            that does not say what they read.
        """
        told = None if workdir is not None and ImageData.saved(workdir) else _told(config)
        if told is None or config.pretrained.get("take", "all") == "all":
            return labelled.load(config.data, workdir, splits, told)
        found = labelled.load(config.data, workdir, splits)
        if len(told.mean) != found.learned.shape[2]:
            return found
        same = {"mean": told.mean, "deviation": told.deviation}
        return dataclasses.replace(found, learned=dataclasses.replace(found.learned, **same))

    # --- training ---

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters."""
        images = jnp.zeros((1, *self.data.learned.shape))
        params: Params = self.system.init(key, images)["params"]
        return params

    def normalised(self, images: Any) -> jax.Array:
        """(x / 255 - mean) / deviation of images [B,H,W,C], float32."""
        learned = self.data.learned
        mean, deviation = (np.asarray(one, np.float32) for one in (learned.mean, learned.deviation))
        return (jnp.asarray(images).astype(jnp.float32) / 255 - mean) / deviation

    def apply(self, params: Params, batch: Batch, **how: Any) -> Tree:
        """Logits [B,C] of a batch, whose images are normalised first."""
        images = self.normalised(batch["image"])
        real = jnp.asarray(batch["label"]) > 0
        return self.system.apply({"params": params}, images, real, **how)

    def loss(
        self,
        params: Params,
        batch: Batch,
        key: jax.Array,
        carried: Tree = None,
        smoothing: Smoothing | None = None,
    ) -> tuple[jax.Array, Sums]:
        """See `Task.loss`, of images changed as `config.augmentation` says; sums "tokens", "rows"
        and "correct" beside it.
        """
        images = augmented(
            jax.random.fold_in(key, _AUGMENTATION),
            jnp.asarray(batch["image"]),
            **self.config.augmentation,
        )
        return super().loss(params, {**batch, "image": images}, key, carried, smoothing)

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Sums over the images of a batch, of logits [B,C]: "loss", "rows", "correct"; and "tokens",
        what is read: an image is one.
        """
        label, logits = jnp.asarray(batch["label"]), outputs.astype(jnp.float32)
        real = label > 0
        losses = cross_entropy(logits, jnp.maximum(label - 1, 0), smoothing)
        return {
            "loss": jnp.where(real, losses, 0.0).sum(),
            "tokens": real.sum(),
            "rows": real.sum(),
            "correct": ((logits.argmax(axis=-1) == label - 1) & real).sum(),
        }

    def weight(self, batch: Batch) -> jax.Array:
        """The number of images."""
        return (jnp.asarray(batch["label"]) > 0).sum().astype(jnp.float32)

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

    def averaged(self, totals: Totals) -> dict[str, float]:
        """ "loss" (nats per image, no smoothing) and "accuracy"."""
        loss, right = (float(totals[name] / totals["rows"]) for name in ("loss", "correct"))
        return {"loss": loss, "accuracy": right}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """ "confusion", how often each label (row) got each answer (column), and "label TAB answer"
        of every image.
        """
        names = self.data.learned.classes
        answers = self._logits(params, self.of_split(split)).argmax(axis=1)
        pairs = [
            (names[label], names[answer])
            for label, answer in zip(self.data.labels(split), answers, strict=True)
        ]
        counts = Counter(pairs)
        confusion = {row: {column: counts[row, column] for column in names} for row in names}
        return {"confusion": confusion}, ["\t".join(pair) for pair in pairs]

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every image: its loss, and whether it is right."""
        logits = self._logits(params, self.of_split(split)).astype(np.float64)
        label = self.data.labels(split)
        wanted = np.take_along_axis(logits, label[:, None], axis=1)[:, 0]
        each = {
            "loss": np.logaddexp.reduce(logits, axis=1) - wanted,
            "accuracy": logits.argmax(axis=1) == label,
        }
        return Items.of(
            {name: ("ratio", np.stack([one, np.ones(len(one))], 1)) for name, one in each.items()}
        )

    def _logits(self, params: Params, examples: Examples) -> np.ndarray:
        """[N,C] of N images, float32."""
        found = np.zeros((len(examples), len(self.data.learned.classes)), np.float32)
        for rows, batch in self.in_order(examples):
            found[rows[rows >= 0]] = np.asarray(self._outputs(params, batch))[rows >= 0]
        return found

    # --- answers and maps ---

    def typed(self, lines: Sequence[str]) -> Examples:
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
        images = [read_image(expanded(line.strip()), height, channels == 1) for line in lines]
        # 1 says that a row is an image; nothing reads which class it would be.
        return Examples(image=np.stack(images), label=np.ones(len(images), np.int32))

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """None: images have no length."""
        return []

    def answers(
        self, params: Params, asked: Examples, lines: Sequence[str]
    ) -> list[list[Response]]:
        """The likeliest class of each image, and its log probability."""
        logits = self._logits(params, asked).astype(np.float64)
        chances = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        names = self.data.learned.classes
        return [[Response(names[int(one.argmax())], float(one.max()))] for one in chances]

    def pictured(self, split: str, number: int) -> list[ImageExample]:
        """The first images of a split, named by their numbers and labels."""
        labels = self.data.labels(split)[:number]
        images = self.of_split(split)["image"].block(np.arange(len(labels)), 1)
        shape, classes = self.data.learned.shape, self.data.learned.classes
        return [
            ImageExample(f"{split} image {row + 1}", images[row].reshape(shape), classes[label])
            for row, label in enumerate(labels)
        ]

    def completed(self, params: Params, typed: Sequence[Typed]) -> list[ImageExample]:
        """Images from files, each with the class that the system gives it.

        Raises:
          UserError: a second text, or a file that is no image.
        """
        for name, second in typed:
            if second is not None:
                raise UserError(
                    f"task={self.config.task} reads one image, not {second!r} beside {name!r}"
                )
        names = [name for name, _ in typed]
        asked = self.typed(names)
        images = asked["image"].block(np.arange(len(names)), 1)
        answers = self.answers(params, asked, names)
        return [
            ImageExample(name, image.reshape(self.data.learned.shape), best[0].text)
            for name, image, best in zip(names, images, answers, strict=True)
        ]

    def laid_out(self, example: ImageExample) -> tuple[list[Any], dict[str, Axis]]:
        """The image, normalised; its places have numbers only."""
        return [self.normalised(example.image[None])], {}

    def maps(self, params: Params, example: Any) -> Maps:
        """See `Task.maps`, with what lies over the image, and the gates."""
        found = super().maps(params, example)
        read, _ = self.laid_out(example)
        looks, gates = gates_of(self.system, params, read, example.image)
        looks |= over_image(example.image, found.weights, found.axes)
        return dataclasses.replace(found, looks=looks, gates=gates)
