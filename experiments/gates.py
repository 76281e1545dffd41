"""What does attention bring to a network of convolutions that classifies images?

    python launch.py sweep experiments/gates.py --dir=runs/gates
    python launch.py sweep experiments/gates.py:FOLDER --dir=runs/gates-clothes

A residual network (He et al. 2016) of at most 300,000 parameters, and the same with a gate: for
channels, for places, for both, a soft mask, a non-local block. Gates that have few parameters stand
in every block, on its branch; the mask and the non-local block, which have more, in one block, behind
it. All have as many parameters, within 2 %. Without an argument the built-in coloured shapes, whose
classes are told by colour and form, and a smaller network. With a folder its images and labels in
IDX files (MNIST, Fashion-MNIST), turned left to right in training, 10 passes over 16,000 images.
"""

from __future__ import annotations

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
            "system.gate.least": 4,
        },
        "soft mask": {
            "system.gate": "residual_attention",
            "system.gate.depth": 1,
            "system.gate.bottleneck": 8,
            **once,
        },
        "non-local": {"system.gate": "non_local", **once},
    }
    return Experiment(
        question="Which gate makes a network of convolutions see better?",
        config="configs/image_classification.py:resnet",
        base={**(of_files(argument) if argument else small()), "training.evaluate_every": 100},
        compare=rows(compared),
        seeds=(0, 1, 2, 3, 4),
        baseline="plain",
        measure=("accuracy", "max"),
        budget=Budget(match="parameters", knob="system.width", within=0.02),
        claim=Claim("Channel gates (SE) make fewer errors than none", (better("SE", "plain"),)),
    )


def small() -> dict[str, Any]:
    """Built-in shapes, a network for two cores."""
    return {"system.depth": 14, "system.width": 16, "data.examples": 4000}


def of_files(folder: str) -> dict[str, Any]:
    """The images of a folder."""
    find_file(folder, "train-images-idx3-ubyte")
    return {
        "data": "idx",
        "data.directory": folder,
        "system.depth": 20,
        "system.width": 16,
        "augmentation.flip": True,
        "batch.size": 128,
        "schedule.peak": 0.1,
        "training.steps": 1250,
    }
