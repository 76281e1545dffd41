"""The configs of tasks of images, see `attnlab.config.nodes`."""

from __future__ import annotations

import dataclasses

from attnlab.config.nodes import AnyRun, Buckets, Run
from attnlab.config.schema import Node, setting, whole


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassification(AnyRun):
    """Images to classes."""

    augmentation: Augmentation


@dataclasses.dataclass(frozen=True, kw_only=True)
class VisualQuestions(Run):
    """Images and questions to answers."""

    batch: Buckets
