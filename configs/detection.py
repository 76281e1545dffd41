"""All objects of images with their boxes, on built-in scenes of coloured shapes unless told otherwise.

    python launch.py train --config=configs/detection.py:detr --workdir=runs/boxes

Arguments: detr (small, for two CPU cores). AP50 on the test was 0.990 and AP 0.850 after 2,500 steps
(seed 0). Its backbone is a field of its own, with gates and non-local
blocks (`list gates`). `system.queries` must be at least the number of objects of an image.
`generate` takes names of image files and gives the objects: class, score, first row, first column,
height and width in pixels; `inspect` draws them. Your own images, FOLDER/NAME/*.jpg, with boxes in COCO's form,
FOLDER/annotations/instances_NAME.json:

    --config.data=coco_boxes --config.data.directory=FOLDER --config.data.train=NAME --config.data.test=NAME --config.data.side=128

Crowds and boxes without an extent are left out. A source of your own has a method `objects(split)`, see
`attnlab.data.images.annotated`.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "detr") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/detection.py")())


SHARED = {
    "task": "detection",
    "data": {
        "name": "scenes",
        "examples": 10_000,
        "valid": 300,
        "test": 300,
        "side": 48,
        "small": 4,
        "large": 7,
        "grid": 3,
        "most": 3,
    },
    "batch": {"size": 32},
    "optimizer": {"name": "adam"},
    "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 100},
    "training": {"steps": 2500, "evaluate_every": 500},
    "checkpoint": {"by": "ap50"},
}
"""What does not depend on the system."""


def _detr() -> dict[str, Any]:
    attention = {"name": "multihead", "heads": 4}
    return {
        "system": {
            "name": "detr",
            "backbone": {"name": "cnn", "widths": (16, 32, 64), "pooling": "mean"},
            "positions": {"name": "sinusoidal_2d"},
            "encoder_attention": attention,
            "decoder_attention": attention,
            "cross_attention": attention,
            "width": 64,
            "hidden": 128,
            "layers": 1,
            "decoder_layers": 2,
            "queries": 6,
            "dropout": 0.0,
        }
    }


_SYSTEMS = {"detr": _detr}
