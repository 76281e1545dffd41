"""Detection: all objects of an image, each with a class and a box, as a set that is compared as one
(Carion et al. 2020).

    cost_{k,i}  = - w_c p_i(c_k) + w_1 |b_i - b_k|_1 - w_g GIoU(b_i, b_k)
    a           = the assignment of objects to queries whose sum of costs is least
    loss        = 1/M sum over layers, images and queries i of - w_c v_i log p_i(class of i)
                  + 1/M sum over layers, images and objects k of
                    w_1 |b_a(k) - b_k|_1 + w_g (1 - GIoU(b_a(k), b_k))

A query that has no object has the class "no object" and v_i = `no_object`, the others v_i = 1. M is
the number of objects of the batch. (The authors' code divides the first sum by sum_i v_i.)

Axis letters: B batch, L layers, N queries, M objects, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.columns import Declared, Examples
from attnlab.data.images.regions import BoxedData
from attnlab.decoding.rows import by_example
from attnlab.errors import UserError
from attnlab.records.measures import Measure
from attnlab.systems.protocol import AttentionMap
from attnlab.systems.vision.protocol import Detected, Detector
from attnlab.tasks import schemas
from attnlab.tasks.boxes import THRESHOLDS, Answers, Truth, average_precisions, matched, overlaps
from attnlab.tasks.images import ImageTask
from attnlab.tasks.protocol import Response, Responses, Rngs, Scores, Smoothing, Totals
from attnlab.tasks.tokens import cross_entropy
from attnlab.training.step import Batch, Params, Sums

_SHOWN = 0.5  # an answer with a lower score is not written


class Detection(ImageTask[schemas.Detection, BoxedData, Detector]):
    """Images to all of their objects; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/detection.py`.
      data: the images and their objects.
      system: the model.
    """

    systems: ClassVar[type[Detector]] = Detector
    schema = schemas.Detection
    loads = BoxedData
    columns: ClassVar[Mapping[str, Declared]] = {
        "image": Declared("uint8", ("H", "W", "C")),
        "boxes": Declared("float32", ("M", 4)),
        "labels": Declared("int32", ("M",)),
        "real": Declared("int32"),
    }
    measures: Mapping[str, Measure | str] = {
        "loss": Measure("min", low=0.0, unit="per object, of all layers"),
        "ap": Measure("max", 0.0, 1.0, unit="COCO: IoU 0.5 to 0.95"),
        "ap50": Measure("max", 0.0, 1.0, unit="IoU 0.5"),
        "iou": Measure("max", 0.0, 1.0, unit="of objects with their matched boxes"),
    }
    evaluated: ClassVar[Sequence[str]] = tuple(measures)
    ratios = {"loss": ("loss", "objects"), "iou": ("iou", "objects")}
    units: ClassVar[Mapping[str, str]] = {"by_class": "class \\ measure"}
    outputs: ClassVar[str] = "boxes.tsv"
    target_column = "labels"

    def __init__(self, config: schemas.Detection, data: BoxedData) -> None:
        """Builds the task and the program of answers; raises `UserError` if an image has more
        objects than the system has queries.
        """
        super().__init__(config, data)
        for split in data.splits:
            if (largest := data.most_objects(split)) > self.system.queries:
                raise UserError(
                    f"config.system.queries={self.system.queries}: an image of the {split} split has"
                    f" {largest} objects; take as many queries or more"
                )
        self._answers = self.jit(lambda params, batch: _best_boxes(self.apply(params, batch)))

    @classmethod
    def check(cls, config: schemas.Detection) -> None:
        """Builds the system to check a config, as `ImageTask.check`, and raises `UserError` where
        only a part of the images is scored in training: average precision needs all.
        """
        super().check(config)
        if rows := config.training.evaluate_rows:
            raise UserError(
                f"config.training.evaluate_rows={rows}: average precision needs all images; set it"
                " to 0"
            )

    # --- training ---

    def real(self, batch: Batch) -> jax.Array:
        """See `ImageTask.real`."""
        return jnp.asarray(batch["real"]) > 0

    def summed(self, outputs: Detected, batch: Batch, smoothing: Smoothing) -> Sums:
        """Computes sums over the objects of a batch: "loss", of all layers; "objects", "iou" and
        "correct" (matched queries whose class is the likeliest), of the last layer; and "rows" and
        "tokens", the images.
        """
        labels, boxes = jnp.asarray(batch["labels"]), jnp.asarray(batch["boxes"])
        layers = jax.vmap(self._sums_of_layer, in_axes=(0, 0, None, None, None, None))
        by_layer = layers(*outputs, labels, boxes, self.real(batch), smoothing)
        rows = self.real(batch).sum()
        return {
            "loss": by_layer["loss"].sum(),
            "tokens": rows,
            "rows": rows,
            "objects": (labels > 0).sum(),
            "iou": by_layer["iou"][-1],
            "correct": by_layer["correct"][-1],
        }

    def _sums_of_layer(
        self,
        logits: jax.Array,
        predicted: jax.Array,
        labels: jax.Array,
        boxes: jax.Array,
        rows: jax.Array,
        smoothing: Smoothing,
    ) -> Sums:
        """Matches the answers of a layer, logits [B,N,C+1] and boxes `predicted` [B,N,4], to the
        objects, labels [B,M] (0 for none) and boxes [B,M,4], and returns the sums "loss", "iou" and
        "correct"; `rows` [B] marks real images.
        """
        weights, logits = self.config.objective, logits.astype(jnp.float32)
        real, classes = labels > 0, logits.shape[-1] - 1
        truth, empty = jnp.maximum(labels - 1, 0), jnp.full(logits.shape[:2], classes)
        chances = jax.nn.softmax(logits)
        likelihood = jnp.take_along_axis(chances, truth[:, None], axis=2).swapaxes(1, 2)  # [B,M,N]
        distance = jnp.abs(predicted[:, None] - boxes[:, :, None]).sum(axis=-1)
        giou = overlaps(predicted[:, None], boxes[:, :, None])[1]
        cost = -weights.classes * likelihood + weights.distance * distance - weights.overlap * giou
        chosen = jax.vmap(matched)(cost, real)  # [B,M]
        queries = jnp.where(real, chosen, logits.shape[1])  # beyond the last: written nowhere
        target = jax.vmap(lambda row, i, k: row.at[i].set(k, mode="drop"))(empty, queries, truth)
        share = jnp.where(target == classes, weights.no_object, 1.0) * rows[:, None]
        matched_boxes = jnp.take_along_axis(predicted, chosen[..., None], axis=1)
        iou, giou = overlaps(matched_boxes, boxes)
        box_loss = weights.distance * jnp.abs(matched_boxes - boxes).sum(axis=-1)
        box_loss = box_loss + weights.overlap * (1 - giou)
        class_loss = weights.classes * share * cross_entropy(logits, target, smoothing)
        answered = jnp.take_along_axis(logits.argmax(axis=-1), chosen, axis=1)
        return {
            "loss": class_loss.sum() + jnp.where(real, box_loss, 0.0).sum(),
            "iou": jnp.where(real, iou, 0.0).sum(),
            "correct": ((answered == truth) & real).sum(),
        }

    def sums(
        self, params: Params, batch: Batch, smoothing: Smoothing = 0.0, rngs: Rngs | None = None
    ) -> Sums:
        """Computes the sums of `summed`, and under "found" the answers to each image: "boxes"
        [B,N,4], "classes" and "scores" [B,N], which `totals` takes out.
        """
        outputs = self.apply(params, batch, rngs=rngs)
        boxes, classes, scores = _best_boxes(outputs)
        detected = {"boxes": boxes, "classes": classes, "scores": scores, "real": self.real(batch)}
        return {**self.summed(outputs, batch, smoothing), "found": detected}  # type: ignore[dict-item]

    # --- scores ---

    def totals(self, sums: Sequence[Totals], split: str, rows: int = 0) -> Totals:
        """Returns one dict of the sums of all batches added up, see `Task.totals`, and under
        "precisions" [C,thresholds] the average precision of each class at each threshold of IoU,
        from the answers of all batches.
        """
        parts = [batch["found"] for batch in sums]
        real = np.concatenate([np.asarray(part["real"]) for part in parts]).astype(bool)
        columns = [
            np.concatenate([np.asarray(part[name]) for part in parts])[real]
            for name in ("boxes", "classes", "scores")
        ]
        numbers = [{name: batch[name] for name in batch if name != "found"} for batch in sums]
        precisions = self._precisions([Answers(*row) for row in zip(*columns, strict=True)], split)
        return {**super().totals(numbers, split, rows), "precisions": precisions}

    def averaged(self, totals: Totals) -> dict[str, float]:
        """The `ratios`, "ap" and "ap50"."""
        precisions, scores = totals["precisions"], super().averaged(totals)
        ap, ap50 = float(np.nanmean(precisions)), float(np.nanmean(precisions[:, 0]))
        return {"loss": scores["loss"], "ap": ap, "ap50": ap50, "iou": scores["iou"]}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns two things: {"by_class": a table with "ap" (the mean over thresholds of IoU) and
        "ap50" (at the first, 0.5) of each class that has objects}, and a list with a line for each
        image, its answers as `answers` writes them.
        """
        detections, names = self.detections(params, self.of_split(split)), self.data.learned.classes
        precisions = self._precisions(detections, split)
        table = {
            name: {"ap": float(values.mean()), "ap50": float(values[0])}
            for name, values in zip(names, precisions, strict=True)
            if not np.isnan(values).any()
        }
        return {"by_class": table}, [self._written(image) for image in detections]

    def _precisions(self, detections: Sequence[Answers], split: str) -> np.ndarray:
        """The average precision of each class at each threshold of IoU, [C,thresholds], of what was
        found in the images of a split.
        """
        truth = [Truth(*image) for image in self.data.rows[split]]
        return average_precisions(detections, truth, len(self.data.learned.classes), THRESHOLDS)

    # --- answers ---

    def detections(self, params: Params, examples: Examples) -> list[Answers]:
        """What is found in each image: a box, a class and a score for every query, in any order."""
        columns = by_example(self._answers, params, self.in_order(examples))
        return [Answers(*image) for image in zip(*columns, strict=True)]

    @staticmethod
    def unlabelled(images: np.ndarray) -> Examples:
        """Returns `Examples` of images [N,H,W,C] without any object, for images to be answered."""
        count = len(images)
        return Examples(
            image=images,
            boxes=np.zeros((count, 1, 4), np.float32),
            labels=np.zeros((count, 1), np.int32),
            real=np.ones(count, np.int32),
        )

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """The objects of each image with a score of at least 0.5, the likeliest first: class, score,
        first row, first column, height and width in pixels; sorted by nothing (0).
        """
        return [[Response(self._written(row), 0.0)] for row in self.detections(params, examples)]

    def answer_maps(self, params: Params, image: np.ndarray) -> dict[str, AttentionMap]:
        """Returns {"answer": an `AttentionMap`} over an image, with a row for each object that
        `answers` names: its score inside of its box, else 0; {} if there is none.
        """
        (detected,) = self.detections(params, self.unlabelled(image[None]))
        height, width = image.shape[:2]
        rows, columns, boxes, names = np.arange(height) + 0.5, np.arange(width) + 0.5, [], []
        for name, score, (row, column, high, wide) in self._confident_objects(detected):
            inside = (abs(rows - row - high / 2) < high / 2)[:, None]
            inside = inside & (abs(columns - column - wide / 2) < wide / 2)
            boxes.append(score * inside)
            names.append(name)
        return (
            {"answer": AttentionMap(np.array(boxes, np.float32), names, (), image)} if boxes else {}
        )

    def _confident_objects(self, detected: Answers) -> Iterator[tuple[str, float, np.ndarray]]:
        """Yields for each detected object with a score of at least 0.5, the likeliest first, its
        class name, its score, and its box in pixels (first row, first column, height, width).
        """
        sides = np.tile(np.array(self.data.learned.shape[:2]), 2)
        for row in np.argsort(-detected.scores, kind="stable"):
            if (score := detected.scores[row]) >= _SHOWN:
                box = detected.boxes[row].astype(np.float64)
                box[:2] -= box[2:] / 2
                yield self.data.learned.classes[detected.classes[row]], score, box * sides

    def _written(self, detected: Answers) -> str:
        """Returns one text with class, score and box of each object of an image that
        `_confident_objects` gives, with commas between; "nothing" if there is none.
        """
        objects = [
            f"{name} {score:.3f} {' '.join(f'{side:.1f}' for side in box)}"
            for name, score, box in self._confident_objects(detected)
        ]
        return ", ".join(objects) or "nothing"


def _best_boxes(outputs: Detected) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The boxes [B,N,4] of the last layer, the likeliest class of each that is one, [B,N], and its
    probability.
    """
    chances = jax.nn.softmax(outputs.logits[-1].astype(jnp.float32))[..., :-1]
    return outputs.boxes[-1].astype(jnp.float32), chances.argmax(axis=-1), chances.max(axis=-1)
