"""Segmentation: the class of every pixel, cross-entropy, and how well the regions overlap.

    loss = - 1/P sum over pixels of log softmax(system(image))_class

`mask` is c + 1 at pixels of class c and 0 where nothing counts: pixels that are left open, rows of
padding. Intersection over union of a class are counts over all pixels of a split; their mean is over
the classes that are there or answered, the ground among them.

Axis letters: B batch, H height, W width, C classes with the ground, P pixels that count.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.columns import Declared, Examples
from attnlab.data.images.regions import SegmentedData
from attnlab.decoding.rows import by_example
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.systems.protocol import AttentionMap
from attnlab.systems.vision.protocol import PixelClassifier
from attnlab.tasks import schemas
from attnlab.tasks.images import ImageTask, augment
from attnlab.tasks.protocol import Loss, Response, Responses, Rngs, Scores, Smoothing, Totals
from attnlab.tasks.tokens import cross_entropy
from attnlab.training.step import Batch, Params, Sums


class Segmentation(ImageTask[schemas.Segmentation, SegmentedData, PixelClassifier]):
    """Images to the class of every pixel; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/segmentation.py`.
      data: the images and their masks.
      system: the model.
    """

    systems: ClassVar[type[PixelClassifier]] = PixelClassifier
    schema = schemas.Segmentation
    loads = SegmentedData
    columns: ClassVar[Mapping[str, Declared]] = {
        "image": Declared("uint8", ("H", "W", "C")),
        "mask": Declared("uint8", ("H", "W")),
    }
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="nats per pixel"),
        "accuracy": share("pixels", unit="share of pixels right"),
        "mean_iou": Measure("max", 0.0, 1.0, unit="intersection over union, mean over classes"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {"loss": ("loss", "pixels"), "accuracy": ("correct", "pixels")}
    units: ClassVar[Mapping[str, str]] = {"confusion": "class \\ answer, pixels"}
    outputs: ClassVar[str] = "overlaps.tsv"
    target_column = "mask"

    def __init__(self, config: schemas.Segmentation, data: SegmentedData) -> None:
        """Builds the task and the programs that score each image alone and that answer with masks."""
        super().__init__(config, data)
        self._rows = self.jit(self._sums_by_image)
        self._answers = self.jit(
            lambda params, batch: self.apply(params, batch).argmax(axis=-1).astype(jnp.uint8)
        )

    # --- training ---

    def real(self, batch: Batch) -> jax.Array:
        """See `ImageTask.real`; an image of which every pixel is left open is as good as none."""
        return (jnp.asarray(batch["mask"]) > 0).any(axis=(1, 2))

    def loss(self, params: Params, batch: Batch, key: jax.Array, **options: Any) -> Loss:
        """See `Task.loss`, of images and masks changed alike, as `config.augmentation` says; pixels
        from outside of the image count for nothing.
        """
        image, mask = jnp.asarray(batch["image"]), jnp.asarray(batch["mask"])[..., None]
        stacked = jnp.concatenate([image, mask], axis=-1)
        stacked = augment(self.config.augmentation, key, stacked)
        batch = {**batch, "image": stacked[..., :-1], "mask": stacked[..., -1]}
        return super().loss(params, batch, key, **options)

    def summed(self, outputs: jax.Array, batch: Batch, smoothing: Smoothing) -> Sums:
        """Computes sums over the labelled pixels (mask above 0) of a batch, from logits [B,H,W,C]:
        "loss", "pixels", "correct"; and "rows" and "tokens", the images.
        """
        mask, logits = jnp.asarray(batch["mask"]).astype(jnp.int32), outputs.astype(jnp.float32)
        counted, rows = mask > 0, self.real(batch).sum()
        losses = cross_entropy(logits, jnp.maximum(mask - 1, 0), smoothing)
        return {
            "loss": jnp.where(counted, losses, 0.0).sum(),
            "tokens": rows,
            "rows": rows,
            "pixels": counted.sum(),
            "correct": ((logits.argmax(axis=-1) == mask - 1) & counted).sum(),
        }

    def sums(
        self, params: Params, batch: Batch, smoothing: Smoothing = 0.0, rngs: Rngs | None = None
    ) -> Sums:
        """The sums of `summed`, and how many pixels of each class got each answer, "confusion"
        [C,C].
        """
        logits = self.apply(params, batch, rngs=rngs)
        confusion = confusions(logits, jnp.asarray(batch["mask"])).sum(axis=0)
        return {**self.summed(logits, batch, smoothing), "confusion": confusion}

    # --- scores ---

    def averaged(self, totals: Totals) -> dict[str, float]:
        """The `ratios` and "mean_iou"."""
        return {**super().averaged(totals), "mean_iou": mean_iou(totals["confusion"])}

    def counts(self, split: str) -> dict[str, int]:
        """The pixels that count."""
        batches = self.in_order(self.of_split(split))
        return {"pixels": sum(int((batch["mask"] > 0).sum()) for _, batch in batches)}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: a mapping with "confusion", for each class a mapping of each answer
        to the number of its pixels that got it, and a list with a line "mean IoU TAB accuracy" for
        every image alone.
        """
        tables, names = self._by_image(params, split)["confusion"], self.data.learned.classes
        total = tables.sum(axis=0)
        table = {
            row: {column: int(total[i, j]) for j, column in enumerate(names)}
            for i, row in enumerate(names)
        }
        share = np.trace(tables, axis1=1, axis2=2) / np.maximum(tables.sum(axis=(1, 2)), 1)
        lines = [f"{mean_iou(row):.4f}\t{hit:.4f}" for row, hit in zip(tables, share, strict=True)]
        return {"confusion": table}, lines

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """Returns `Items` with a row for every image, from which "loss", "accuracy" and "mean_iou"
        are resampled: its summed loss, its right pixels and number of pixels, and the intersection
        and union of each class.
        """
        by_image = self._by_image(params, split)
        tables = by_image["confusion"]
        pixels, hits = tables.sum(axis=(1, 2)), np.diagonal(tables, axis1=1, axis2=2)
        either = tables.sum(axis=1) + tables.sum(axis=2) - hits
        rows = {
            "loss": ("ratio", np.stack([by_image["loss"], pixels], axis=1)),
            "accuracy": ("ratio", np.stack([hits.sum(axis=1), pixels], axis=1)),
            "mean_iou": ("macro_f1", np.concatenate([hits, either], axis=1)),
        }
        return Items.of(rows)

    def _sums_by_image(self, params: Params, batch: Batch) -> Sums:
        """Computes "loss" [B], summed over pixels, and "confusion" [B,C,C] of each image of a
        batch.
        """
        logits = self.apply(params, batch).astype(jnp.float32)
        mask = jnp.asarray(batch["mask"]).astype(jnp.int32)
        losses = cross_entropy(logits, jnp.maximum(mask - 1, 0), 0.0)
        return {
            "loss": jnp.where(mask > 0, losses, 0.0).sum(axis=(1, 2)),
            "confusion": confusions(logits, mask),
        }

    def _by_image(self, params: Params, split: str) -> dict[str, np.ndarray]:
        """`_sums_by_image` of all images of a split, in their order."""
        sums = by_example(self._rows, params, self.split_batches(split))
        wide = {"loss": np.float64, "confusion": np.int64}
        return {name: sums[name].astype(kind) for name, kind in wide.items()}

    # --- answers ---

    def masks(self, params: Params, examples: Examples) -> np.ndarray:
        """The likeliest class of every pixel, numbers of `data.learned.classes`: uint8 [N,H,W]."""
        masks: np.ndarray = by_example(self._answers, params, self.in_order(examples))
        return masks

    @staticmethod
    def unlabelled(images: np.ndarray) -> Examples:
        """See `ImageTask.unlabelled`."""
        return Examples(image=images, mask=np.ones(images.shape[:3], np.uint8))

    def answer_maps(self, params: Params, image: np.ndarray) -> dict[str, AttentionMap]:
        """The pixels of each class that the image shows, the largest first."""
        (mask,), names = self.masks(params, self.unlabelled(image[None])), self.data.learned.classes
        order = _by_size(mask, len(names))
        pixels = np.stack([mask == number for number in order]).astype(np.float32)
        return {"answer": AttentionMap(pixels, [names[number] for number in order], (), image)}

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """Returns for each image a list of one `Response`: the classes that it shows with their
        shares of its pixels, the largest first, and the score 0. `masks` gives the pixels.
        """
        names, responses = self.data.learned.classes, []
        for mask in self.masks(params, examples):
            shares = [f"{names[k]} {(mask == k).mean():.3f}" for k in _by_size(mask, len(names))]
            responses.append([Response(", ".join(shares), 0.0)])
        return responses


def _by_size(mask: np.ndarray, classes: int) -> list[int]:
    """The classes that a mask [H,W] shows, those of the most pixels first."""
    counts = np.bincount(mask.ravel(), minlength=classes)
    return [int(number) for number in np.argsort(-counts, kind="stable") if counts[number]]


def confusions(logits: jax.Array, mask: jax.Array) -> jax.Array:
    """Counts how many pixels of each class (row) got each answer (column): logits [B,H,W,C] and
    masks [B,H,W], 0 where nothing counts, to int32 [B,C,C].
    """
    classes = logits.shape[-1]
    labels, answers = mask.astype(jnp.int32) - 1, logits.argmax(axis=-1)
    one_hot = [jax.nn.one_hot(pixels, classes, dtype=jnp.float32) for pixels in (labels, answers)]
    # Exact: counts are below 2^24.
    return jnp.einsum("bhwi,bhwj->bij", *one_hot).astype(jnp.int32)


def mean_iou(confusion: Any) -> float:
    """The mean over classes of hits / (label or answer), from counts [C,C]; a class that is neither
    there nor answered is left out.
    """
    counts = np.asarray(confusion, np.float64)
    hits = np.diagonal(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - hits
    return float(np.mean(hits[either > 0] / either[either > 0])) if either.any() else 0.0
