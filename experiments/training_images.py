"""Does a Vision Transformer need more images than a network of convolutions?

    python launch.py sweep experiments/training_images.py --dir=runs/images
    python launch.py sweep experiments/training_images.py:FOLDER --dir=runs/images-clothes

A residual network of 8 layers (He et al. 2016) and a Vision Transformer (Dosovitskiy et al. 2021)
of as many parameters, within 2 %, trained on few images, more and many; as many updates for each, so
few images are seen more often. The claim is a difference of differences: the Transformer gains more
from more images. Without an argument the built-in coloured shapes; with a folder its images and
labels in IDX files (MNIST, Fashion-MNIST), turned left to right in training.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Contrast, Experiment, cross, rows

SHAPES = (500, 2000, 8000)
CLOTHES = (800, 3200, 12_800)


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on built-in shapes, or on the images of the folder in the argument.

    Raises:
      UserError: no such folder.
    """
    counts = CLOTHES if argument else SHAPES
    images = rows({f"{count:,} images": {"data.examples": count} for count in counts})
    systems = rows({"ResNet": {"system.depth": 8}, "ViT": transformer()})
    few, many = (f"{count:,} images" for count in (counts[0], counts[-1]))
    gain = {
        f"ViT, {many}": 1.0,
        f"ViT, {few}": -1.0,
        f"ResNet, {many}": -1.0,
        f"ResNet, {few}": 1.0,
    }
    return Experiment(
        question="Does a Vision Transformer need more images than a network of convolutions?",
        config="configs/image_classification.py:resnet",
        base={
            **(of_files(argument) if argument else {}),
            "system.width": 16,
            "training.steps": 1000,
            "training.evaluate_every": 200,
        },
        compare=cross(systems, images),
        seeds=(0, 1, 2),
        baseline=f"ResNet, {many}",
        measure=("accuracy", "max"),
        budget=Budget(
            match="parameters",
            knob="system.width",
            within=0.02,
            knobs={f"ViT, {count:,} images": "system.hidden" for count in counts},
        ),
        claim=Claim(
            "More images help the Vision Transformer more than the residual network",
            (Contrast(gain),),
        ),
    )


def transformer() -> dict[str, Any]:
    """A Vision Transformer, and how it is trained."""
    return {
        "system": "vit",
        "system.patch": 4,
        "system.width": 48,
        "system.hidden": 96,
        "system.layers": 3,
        "system.positions": "learned",
        "system.attention": "multihead",
        "system.attention.heads": 4,
        "optimizer": "adamw",
        "schedule.peak": 2e-3,
    }


def of_files(folder: str) -> dict[str, Any]:
    """The images of a folder; those held out for validation are the same for all."""
    find_file(folder, "train-images-idx3-ubyte")
    return {"data": "idx", "data.directory": folder, "augmentation.flip": True}
