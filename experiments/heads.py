"""How many heads, and how are their products scaled? The Transformer on the grammar.

    python launch.py sweep experiments/heads.py --dir=runs/heads
    python launch.py sweep experiments/heads.py:scale --dir=runs/heads-scale

Without an argument, or with "number": Vaswani et al. 2017 (table 3, rows A) split one width among 1
to 32 heads; one head is worse than eight, and too many are worse again. Parameters and products are
the same, as `report` shows. With "scale": they divide products of queries and keys by the square
root of the head width (section 3.2.1), since unscaled ones grow with it and the softmax saturates.
Heads of 8 to 256 channels, whatever the width of the model. The claim is a difference of
differences: the scale matters more at 256 channels than at 8. How sharp the weights are and how long
the gradients, of trials that have been trained:

    python -m benchmarks.sharpness runs/heads-scale
"""

from typing import Any

from attnlab.config import choose
from attnlab.experiments import Budget, Claim, Contrast, Experiment, better, cross, rows

SLOTS = ("encoder_attention", "decoder_attention", "cross_attention")
HEADS, WIDTHS = (1, 2, 4, 8, 16), (8, 64, 256)


def get_experiment(argument: str = "") -> Experiment:
    """One of the two experiments.

    Raises:
      UserError: the argument is neither "number" nor "scale".
    """
    experiments = {"number": number, "scale": scale}
    return choose(argument or "number", experiments, "experiments/heads.py", "experiment")()


def in_all(**settings: Any) -> dict[str, Any]:
    """The same settings of the attention in all three slots."""
    return {f"system.{slot}.{key}": value for slot in SLOTS for key, value in settings.items()}


def base(steps: int) -> dict[str, Any]:
    """What both share."""
    return {
        "data": "grammar",
        "vocabulary.kind": "word",
        "batch.buckets": (32,),
        "batch.max_length": 32,
        "training.steps": steps,
        "schedule.peak": 4e-3,
        "schedule.warmup": 100,
        "decoding.method": "greedy",
        "system.width": 64,
        "system.hidden": 256,
    }


def number() -> Experiment:
    """One width, 1 to 16 heads."""
    return Experiment(
        question="How many heads does a width of 64 need?",
        config="configs/translation.py:transformer",
        base=base(600),
        compare=rows({f"{heads} heads": in_all(heads=heads) for heads in HEADS}),
        seeds=(0, 1, 2, 3, 4),
        baseline="1 heads",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.hidden"),
        claim=Claim("Eight heads have a lower loss than one", (better("8 heads", "1 heads"),)),
    )


def scale() -> Experiment:
    """Products as they are, and divided by the square root of the head width; two heads."""
    widths = rows({f"width {width}": in_all(head_width=width) for width in WIDTHS})
    scores = rows({"scaled": in_all(score="scaled_dot"), "unscaled": in_all(score="dot")})
    narrow, wide = (f"width {width}" for width in (WIDTHS[0], WIDTHS[-1]))
    gain = {
        f"unscaled, {wide}": 1.0,
        f"scaled, {wide}": -1.0,
        f"unscaled, {narrow}": -1.0,
        f"scaled, {narrow}": 1.0,
    }
    return Experiment(
        question="Must products of queries and keys be scaled by the head width?",
        config="configs/translation.py:transformer",
        base={**base(400), **in_all(heads=2)},
        compare=cross(scores, widths),
        seeds=(0, 1, 2),
        baseline=f"scaled, {narrow}",
        measure=("loss", "min"),
        claim=Claim(
            "Scaling lowers the loss, and more so with heads of 256 channels than of 8",
            (better(f"scaled, {wide}", f"unscaled, {wide}"), Contrast(gain)),
        ),
    )
