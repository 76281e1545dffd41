"""What a model of images reads, as its folder tells: the size of images, what their pixels are
normalised by, and which classes it tells apart.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Images of a model from elsewhere.

    Attributes:
      shape: H, W, C that it was trained on.
      mean, deviation: of each channel, where 255 is 1.
      classes: in the order of its outputs.
    """

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    classes: tuple[str, ...]

    def run(self) -> dict[str, Any]:
        """What the config of a run says of the task and its data."""
        height, width, channels = self.shape
        square = {"side": height} if height == width else {"side": 0}
        return {
            "task": "image_classification",
            "data": {"name": "image_folder", **square, "grey": channels == 1},
            "batch": {"size": 16},
            "checkpoint": {"by": "accuracy"},
        }
