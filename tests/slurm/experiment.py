"""The sweep that `python -m tests.slurm` runs: two scores, two seeds, long enough to be taken off
the machine in the middle.
"""

from attnlab.experiments import Claim, Experiment, better, rows

SMALL = {"embedding": 8, "encoder": 8, "decoder": 8, "maxout": 6}
STEPS = 2000


def get_experiment(argument: str = "") -> Experiment:
    """The argument is the number of steps."""
    base = {f"system.{key}": value for key, value in SMALL.items()}
    base |= {"data.examples": 400, "data.valid": 16, "data.test": 8}
    base |= {"batch.size": 16, "batch.buckets": (32,), "batch.max_length": 32}
    base |= {"training.steps": int(argument or STEPS), "training.log_every": 10}
    base |= {"training.evaluate_every": 250, "schedule.warmup": 20, "checkpoint.every": 100}
    base |= {"decoding.method": "greedy", "decoding.max_ratio": 0.4, "decoding.max_extra": 2}
    additive = {"system.attention.score.hidden": 8}
    contrast = better("additive", "general", by=-1.0)
    return Experiment(
        question="Do trials that SLURM takes off the machine end as those that were left alone?",
        config="configs/translation.py:rnnsearch",
        base=base,
        compare=rows({"additive": additive, "general": {"system.attention.score": "general"}}),
        seeds=(0, 1),
        measure=("exact", "max"),
        claim=Claim("additive is no worse than general by more than one", (contrast,)),
    )
