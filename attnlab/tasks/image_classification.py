"""Classification of images: cross-entropy, accuracy, and how often each class got each answer.

    x      = (image / 255 - mean) / deviation        of each channel, over the training split
    loss   = mean over images of -log softmax(system(x))_label

Mean and deviation are computed once and kept with the run; with weights of another model they are
that model's. In training images are changed first, as
`config.augmentation` says, by numbers that follow from seed and step. `label` is k + 1 for class k
and 0 for a row of padding.

Axis letters: B batch, H height, W width, C classes.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab import weights
from attnlab.config.registry import build
from attnlab.data import SOURCES
from attnlab.data.columns import Declared, Examples
from attnlab.data.images.folder import ImageFolder, read_images
from attnlab.data.images.labelled import ImageData
from attnlab.data.learned import Learned, Shape
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.vision.protocol import ImageClassifier
from attnlab.tasks import schemas
from attnlab.tasks.auxiliary import Decisions
from attnlab.tasks.classification import Choosing, choice_rows, choice_sums, confusion
from attnlab.tasks.images import ImageTask
from attnlab.tasks.maps import ImageExample, numbered
from attnlab.tasks.models import refuse_terms, shapes_of, system_factory
from attnlab.tasks.protocol import Batch, Loss, Params, Scores, Smoothing, Sums, Tree
from attnlab.tasks.tokens import cross_entropy


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
        images = self.augment(key, jnp.asarray(batch["image"]))
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
