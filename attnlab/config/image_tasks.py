"""The configs of tasks of images, see `attnlab.config.nodes`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from attnlab.config.decoding import Decoding
from attnlab.config.nodes import (
    LONGER,
    AnyRun,
    Buckets,
    PairAuxiliary,
    Reinforce,
    Run,
    TokenTraining,
    Vocabulary,
)
from attnlab.config.schema import AT_LEAST_ZERO, Node, setting, whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(Node):
    """How images are changed in training; never in evaluation."""

    crop: int = setting(
        "pixels of an edge of zeros, put around an image before one of its own size is cut out"
        " anywhere",
        0,
        within=whole(0, 2**10),
    )
    flip: bool = setting("whether every second image, on average, is turned left to right", False)
    anywhere: bool = setting(
        "whether all that is not 0 in an image is moved as one piece, to anywhere within it", False
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decided(Node):
    """How decisions that a system takes by chance are trained; it acts where a system decides."""

    reward: Literal["right", "log_likelihood"] = setting(
        "1 for an image whose answer is right, else 0; or the log-likelihood of its class", "right"
    )
    weight: float = setting(
        "of the reward; 0 leaves the decisions untrained", 1.0, within=AT_LEAST_ZERO
    )
    baseline: float = setting(
        "weight of the squared error of the reward that the system expects",
        1.0,
        within=AT_LEAST_ZERO,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassification(AnyRun):
    """Images to classes."""

    augmentation: Augmentation
    decisions: Decided


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segmentation(AnyRun):
    """Images to the class of every pixel."""

    augmentation: Augmentation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective(Node):
    """What weighs how much in the loss of detection, and in the costs by which objects and answers
    are matched.
    """

    classes: float = setting("of the classes", 1.0, within=AT_LEAST_ZERO)
    distance: float = setting("of the distance of boxes, L1", 5.0, within=AT_LEAST_ZERO)
    overlap: float = setting("of their generalised IoU", 2.0, within=AT_LEAST_ZERO)
    no_object: float = setting(
        "of answers without an object, beside 1 of those with one", 0.1, within=AT_LEAST_ZERO
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detection(AnyRun):
    """Images to all of their objects."""

    objective: Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts(Buckets):
    """Batches of texts beside images."""

    longer: Literal["score", "cut", "refuse"] = setting(LONGER, "score")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Captioning(AnyRun):
    """Images to texts."""

    augmentation: Augmentation
    vocabulary: Vocabulary
    batch: Texts
    training: TokenTraining
    auxiliary: PairAuxiliary
    reinforce: Reinforce
    decoding: Decoding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(Texts):
    """Batches of questions about images."""

    questions: int = setting(
        "questions about one image that stand in a row, so that the image is read once for all of"
        " them; the size then counts such rows",
        1,
        within=whole(1, 2**16),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VisualQuestions(Run):
    """Images and questions to answers."""

    batch: Asked
