"""Images to classes, on built-in coloured shapes unless told otherwise.

    python launch.py train --config=configs/image_classification.py:resnet --workdir=runs/shapes

Arguments: cnn, resnet, vit (small, for two CPU cores), resnet_paper (ResNet-56 as for CIFAR-10) and
vit_paper (ViT-B/16 on ImageNet), published settings, not measured here; on larger images that are
mostly empty, glimpses (looks at a few places) and perceptron, its control.
With resnet, 0.82 of the test labels were right after 400 steps (seed 0; chance is 0.04); 40 s of
processor time. With vit, all 1,000 of them after 1,000 steps (of those for validation 0.90 after 250;
seed 0); 160 s of processor time. With glimpses, 0.966 of MNIST on 60 x 60 pixels after 20,000, with
perceptron 0.917 (docs/results/images.md). cnn: not measured here.
Your own images:

    --config.data=idx --config.data.directory=FOLDER             MNIST, Fashion-MNIST and others in their form
    --config.data=npz --config.data.file=cifar10.npz             arrays x_train, y_train, x_test, y_test
    --config.data=image_folder --config.data.directory=FOLDER --config.data.side=32     train/CLASS/*.png, test/CLASS/*.png
    --config.data=tfds_images --config.data.dataset=cifar10      a prepared TensorFlow Dataset, see docs/extending/data.md
    --config.data=translated --config.data.of=idx --config.data.of.directory=FOLDER     anywhere on 60 x 60 pixels

A part of training (`data.held_out`) is for validation; `data.examples` takes so many of the rest. `augmentation.crop=4` and
`augmentation.flip=true` change images in training, and `augmentation.anywhere=true` moves what they
show on an empty ground. For images of another size vit needs
`system.positions.length` (patches and one) or `system.positions=sinusoidal_2d`. `generate` takes
names of image files and gives their classes.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "resnet") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/image_classification.py")())


SHARED = {
    "task": "image_classification",
    "data": {
        "name": "shapes",
        "examples": 10_000,
        "side": 32,
        "small": 3,
        "large": 5,
    },
    "batch": {"size": 64},
    "optimizer": {"name": "sgd", "momentum": 0.9},
    "schedule": {"name": "cosine", "peak": 0.05, "warmup": 20},
    "training": {"steps": 400, "evaluate_every": 100},
    "checkpoint": {"by": "accuracy"},
}
"""What does not depend on the system."""


def _cnn() -> dict[str, Any]:
    return {"system": {"name": "cnn", "widths": (16, 32, 32)}}


def _resnet() -> dict[str, Any]:
    return {"system": {"name": "resnet", "depth": 8, "width": 8}}


def _resnet_paper() -> dict[str, Any]:
    """He et al. 2016, section 4.2, on CIFAR-10: 64,000 updates of 128 images, a rate of 0.1 that is
    divided by 10 at 32,000 and 48,000.

    The paper decays all weights by 1e-4, which sgd does not do here, and evaluates the last state;
    its second division comes after 16,000 updates, a third, at the very end, is left out.
    """
    return {
        "system": {"name": "resnet", "depth": 56},
        "data": {"name": "npz", "file": "cifar10.npz"},
        "batch": {"size": 128},
        "augmentation": {"crop": 4, "flip": True},
        "schedule": {
            "name": "stepped",
            "peak": 0.1,
            "warmup": 0,
            "hold": 32_000,
            "every": 16_000,
            "factor": 0.1,
        },
        "training": {"steps": 64_000, "clip": 0.0, "evaluate_every": 1000},
        "checkpoint": {"every": 1000},
    }


def _vit() -> dict[str, Any]:
    return {
        "system": {
            "name": "vit",
            **{"patch": 4, "width": 64, "layers": 4, "hidden": 128, "dropout": 0.0},
            "positions": {"name": "learned", "length": 65},
            "attention": {"name": "multihead", "heads": 4, "bias": True},
        },
        "optimizer": {"name": "adamw", "weight_decay": 0.01},
        "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 50},
        "training": {"steps": 1000, "evaluate_every": 250},
    }


def _vit_paper() -> dict[str, Any]:
    """Dosovitskiy et al. 2021, ViT-B/16 on ImageNet alone, table 3: Adam, 300 passes over 1.28
    million images of 224 x 224 in batches of 4,096, a peak of 3e-3 after 10,000 updates, which then
    falls as a cosine; weight decay 0.3, dropout 0.1, gradients clipped at 1.

    Your images as a folder; they are resized to squares, where the paper crops them at random.
    """
    return {
        "system": {
            "name": "vit",
            **{"patch": 16, "width": 768, "layers": 12, "hidden": 3072, "dropout": 0.1},
            "positions": {"name": "learned", "length": 197},
            "attention": {"name": "multihead", "heads": 12, "bias": True},
        },
        "data": {"name": "image_folder", "directory": "imagenet", "side": 224},
        "batch": {"size": 4096},
        "augmentation": {"flip": True},
        "optimizer": {"name": "adamw", "weight_decay": 0.3},
        "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 10_000},
        "training": {"steps": 93_750, "clip": 1.0, "evaluate_every": 1000},
        "checkpoint": {"every": 1000},
    }


def _glimpses() -> dict[str, Any]:
    """On a large ground, where most of an image shows nothing: the first look covers all of 60 x 60
    pixels, coarsely, the second scale 32 x 32 of them, a whole object.
    """
    return {
        **_large(peak=5e-4),
        "system": {"name": "glimpses", "glimpses": 6, "size": 16, "deviation": 0.1},
        "decisions": {"weight": 0.1},
    }


def _perceptron() -> dict[str, Any]:
    """As many parameters as `glimpses` on 60 x 60 grey pixels, within 2 %."""
    return {**_large(peak=2e-3), "system": {"name": "perceptron", "widths": (180, 180)}}


def _large(peak: float) -> dict[str, Any]:
    """What both share: images of 60 x 60 pixels, and Adam."""
    return {
        "data": {"side": 60},
        "optimizer": {"name": "adam"},
        "schedule": {"name": "cosine", "peak": peak, "warmup": 100},
    }


_SYSTEMS = {
    "cnn": _cnn,
    "resnet": _resnet,
    "resnet_paper": _resnet_paper,
    "vit": _vit,
    "vit_paper": _vit_paper,
    "glimpses": _glimpses,
    "perceptron": _perceptron,
}
