"""Does depth need residual connections, and does a deep decoder need to look at every layer?

    python launch.py sweep experiments/depth.py --dir=runs/depth
    python launch.py sweep experiments/depth.py:steps --dir=runs/depth-steps
    python launch.py sweep experiments/depth.py:images --dir=runs/depth-images

Without an argument, or with "residual": GNMT (Wu et al. 2016) adds the input of a layer to its
output from the third layer on; 2, 4 and 8 layers with and without. The sentences of the grammar are
reordered and agree over a distance. The claim is a difference of differences: residual connections
matter more with 8 layers than with 2, where none has one. With "steps": the four decoder layers of
ConvS2S (Gehring et al. 2017) all look at the source, or only the last, the first, or none. With
"images": networks of 8 to 56 layers of convolutions on images of coloured shapes, with and without
the sums (He et al. 2016, section 4.2); each depth has its size, which the sums do not change.
"""

from typing import Any

from attnlab.config import choose
from attnlab.experiments import Budget, Claim, Contrast, Experiment, better, cross, rows

DEPTHS = (2, 4, 8)
IMAGE_DEPTHS = (8, 20, 32, 56)


def get_experiment(argument: str = "") -> Experiment:
    """One of the three experiments.

    Raises:
      UserError: the argument is none of "residual", "steps" and "images".
    """
    experiments = {"residual": residual, "steps": steps, "images": images}
    return choose(argument or "residual", experiments, "experiments/depth.py", "experiment")()


def grammar(training: int) -> dict[str, Any]:
    """What both share."""
    return {
        "data": "grammar",
        "vocabulary.kind": "word",
        "batch.buckets": (32,),
        "batch.max_length": 32,
        "training.steps": training,
        "decoding.method": "greedy",
    }


def residual() -> Experiment:
    """GNMT of three depths, equally large: the deep ones are narrower."""
    shallow = f"{DEPTHS[0]} layers"
    sums = rows({"residual": {}, "plain": {"system.residual": False}})
    depths = rows(
        {
            f"{depth} layers": {"system.encoder_layers": depth, "system.decoder_layers": depth}
            for depth in DEPTHS
        }
    )
    return Experiment(
        question="Does depth need residual connections?",
        config="configs/translation.py:gnmt",
        base={**grammar(600), "system.width": 48},
        compare=cross(sums, depths),
        seeds=(0, 1, 2, 3, 4),
        baseline=f"plain, {shallow}",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.width", to=f"plain, {shallow}", within=0.05),
        claim=more_with_depth(DEPTHS),
    )


def images() -> Experiment:
    """Networks of convolutions, as wide at each depth."""
    sums = rows({"residual": {}, "plain": {"system.residual": False}})
    depths = rows({f"{depth} layers": {"system.depth": depth} for depth in IMAGE_DEPTHS})
    return Experiment(
        question="Does a deep network of convolutions need residual connections?",
        config="configs/image_classification.py:resnet",
        base={"training.steps": 600, "training.evaluate_every": 150},
        compare=cross(sums, depths),
        seeds=(0, 1, 2),
        baseline=f"plain, {IMAGE_DEPTHS[0]} layers",
        measure=("loss", "min"),
        claim=more_with_depth(IMAGE_DEPTHS),
    )


def more_with_depth(depths: tuple[int, ...]) -> Claim:
    """The claim that the sums lower the loss more in the deepest than in the shallowest."""
    shallow, deep = (f"{depth} layers" for depth in (depths[0], depths[-1]))
    gain = {
        f"residual, {deep}": -1.0,
        f"plain, {deep}": 1.0,
        f"residual, {shallow}": 1.0,
        f"plain, {shallow}": -1.0,
    }
    return Claim(
        f"Residual connections lower the loss more with {deep} than with {shallow}",
        (Contrast(gain),),
    )


def steps() -> Experiment:
    """ConvS2S with attention in all of four decoder layers, in one, in none."""
    looks = {
        "all": {"system.attend": "all"},
        "last": {"system.attend": "last"},
        "first": {"system.attend": "first"},
        "none": {"system.attend": "none"},
    }
    return Experiment(
        question="Does a deep decoder need to look at the source in every layer?",
        config="configs/translation.py:convs2s",
        base={**grammar(600), "system.decoder_layers": 4},
        compare=rows(looks),
        seeds=(0, 1, 2, 3, 4),
        baseline="all",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.embedding"),
        claim=Claim(
            "Attention in all layers lowers the loss against attention in one",
            (better("all", "last"), better("all", "first")),
        ),
    )
