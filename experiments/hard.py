"""Is hard attention harder to train? Soft weights against three ways to look at one place, on dates.

    python launch.py sweep experiments/hard.py --dir=runs/hard

Xu et al. 2015 sample the place that is looked at and train the sampling by REINFORCE ("hard").
"straight-through" (Bengio et al. 2013) takes the largest weight and hands the gradient on as if it
had been soft; "Gumbel" (Jang et al. 2017) samples from a relaxation. When answers are written, all
three look at the place of the largest weight.
"""

from __future__ import annotations

from attnlab.errors import UserError
from attnlab.experiments import Claim, Experiment, better, rows

KINDS = {
    "soft": "softmax",
    "hard": "hard",
    "straight-through": "straight_through",
    "Gumbel": "gumbel",
}


def get_experiment(argument: str = "") -> Experiment:
    """The experiment; it takes no argument, and raises `UserError` if it is given one."""
    if argument:
        raise UserError(
            f"experiments/hard.py:{argument}: it takes no argument, leave out ':{argument}'"
        )
    small = {f"system.{name}": 32 for name in ("embedding", "encoder", "maxout")}
    return Experiment(
        question="Is hard attention harder to train than soft attention?",
        config="configs/translation.py:rnnsearch",
        base={
            **small,
            "system.decoder": 64,
            "data.examples": 10_000,
            "data.valid": 500,
            "batch.buckets": (30,),
            "batch.max_length": 30,
            "training.steps": 600,
            "training.evaluate_every": 100,
            "schedule.peak": 5e-3,
            "schedule.warmup": 40,
            "decoding.method": "greedy",
        },
        compare=rows({name: {"system.attention.alignment": kind} for name, kind in KINDS.items()}),
        seeds=(0, 1, 2, 3, 4),
        baseline="soft",
        measure=("exact", "max"),
        claim=Claim(
            "Soft attention gets more dates right than any kind that looks at one place",
            tuple(better("soft", other) for other in KINDS if other != "soft"),
        ),
    )
