"""How often should a translator look? Once before every word, as a rule; here after it, once or several times, equally large.

python launch.py sweep looking.py --dir=runs/looking
"""

from attnlab.errors import UserError
from attnlab.experiments import Budget, Claim, Experiment, better, grid, rows

AFTER = {"system": "look_after:LookAfter", "system.embedding": 16}
VARIANTS = {
    "before": {
        "system": "rnnsearch",
        "system.embedding": 16,
        "system.encoder": 16,
        "system.decoder": 32,
        "system.attention.score": "dot",
    },
    "after": {**AFTER, "system.attention": "single", "system.attention.score": "dot"},
    "after, heads": {**AFTER, "system.attention": "multihead", "system.attention.heads": 2},
    "after, twice": {**AFTER, "system.attention": "hopfield:Hopfield"},
}


def get_experiment(argument: str = "") -> Experiment:
    """The experiment; the argument is the number of seeds, 3 without."""
    if argument and not argument.isdigit():
        raise UserError(f"looking.py:{argument}: expected a number of seeds")
    return Experiment(
        question="Should a translator look before it reads a word or after, and does a better look pay?",
        config="configs/translation.py:rnnsearch",
        base={
            "data.examples": 5000,
            "data.valid": 200,
            "data.test": 200,
            "batch.buckets": (30,),
            "batch.max_length": 30,
            "training.steps": 300,
            "training.evaluate_every": 150,
            "schedule.warmup": 30,
            "decoding.method": "greedy",
        },
        compare=rows(VARIANTS),
        tune=grid({"schedule.peak": (3e-3, 1e-2)}),
        seeds=tuple(range(int(argument or 3))),
        baseline="before",
        select=("loss", "min"),
        measure=("exact", "max"),
        budget=Budget(
            match="parameters", knob="system.width", within=0.05, knobs={"before": "system.maxout"}
        ),
        claim=Claim(
            "Several heads get at least a twentieth more of the dates right than one",
            (better("after, heads", "after", by=0.05),),
        ),
    )
