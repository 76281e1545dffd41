"""What does attention bring to a network of convolutions that classifies images?

    python launch.py sweep experiments/gates.py --dir=runs/gates
    python launch.py sweep experiments/gates.py:FOLDER --dir=runs/gates-clothes

A residual network of 8 layers (He et al. 2016), and the same with a gate: for channels, for places,
for both, a soft mask, a non-local block; and a Vision Transformer. Gates that have few parameters
stand in every block, on its branch; the mask and the non-local block, which have more, in one block,
behind it. All have as many parameters, within 2 %. Without an argument the built-in coloured shapes,
whose classes are told by colour and form. With a folder its images and labels in IDX files (MNIST,
Fashion-MNIST), turned left to right in training.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Experiment, better, rows


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on built-in shapes, or on the images of the folder in the argument.

    Raises:
      UserError: no such folder.
    """
    once = {"system.gated": (1,), "system.often": "last", "system.place": "after"}
    compared: dict[str, dict[str, Any]] = {
        "plain": {},
        "SE": {"system.gate": "se"},
        "ECA": {"system.gate": "eca"},
        "spatial": {"system.gate": "spatial"},
        "CBAM": {"system.gate": "cbam"},
        "coordinate": {
            "system.gate": "coordinate",
            "system.gate.reduction": 32,
            "system.gate.least": 3,
        },
        "soft mask": {
            "system.gate": "residual_attention",
            "system.gate.depth": 1,
            "system.gate.bottleneck": 8,
            **once,
            "system.gated": (0,),
        },
        "non-local": {"system.gate": "non_local", "system.gate.reduction": 4, **once},
    }
    compared = {label: {"system.depth": 8, **settings} for label, settings in compared.items()}
    compared["ViT"] = transformer()
    return Experiment(
        question="Which gate makes a network of convolutions see better?",
        config="configs/image_classification.py:resnet",
        base={
            **(of_files(argument) if argument else small()),
            "system.width": 16,
            "training.evaluate_every": 550 if argument else 100,
        },
        compare=rows(compared),
        seeds=(0, 1, 2, 3, 4),
        baseline="plain",
        measure=("accuracy", "max"),
        budget=Budget(
            match="parameters", knob="system.width", within=0.02, knobs={"ViT": "system.hidden"}
        ),
        claim=Claim("Channel gates (SE) make fewer errors than none", (better("SE", "plain"),)),
    )


def small() -> dict[str, Any]:
    """Built-in shapes, few enough for two cores."""
    return {"data.examples": 4000}


def transformer() -> dict[str, Any]:
    """A Vision Transformer (Dosovitskiy et al. 2021), and how it is trained."""
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
    """The images of a folder."""
    find_file(folder, "train-images-idx3-ubyte")
    return {
        "data": "idx",
        "data.directory": folder,
        "augmentation.flip": True,
        "schedule.peak": 0.1,
        "training.steps": 2200,
    }
