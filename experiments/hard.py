"""Is hard attention harder to train? Soft weights against three ways to look at one place.

    python launch.py sweep experiments/hard.py --dir=runs/hard
    python launch.py sweep experiments/hard.py:captions --dir=runs/hard-captions

Xu et al. 2015 sample the place that is looked at and train the sampling by REINFORCE ("hard").
"straight-through" (Bengio et al. 2013) takes the largest weight and hands the gradient on as if it
had been soft; "Gumbel" (Jang et al. 2017) samples from a relaxation. When answers are written, all
three look at the place of the largest weight. Without an argument, or with "dates", a translator of
dates; with "captions" the captioner of Xu et al. on generated scenes, whose report also says how
often a word looked at its object, and how far seeds lie apart. There the reward weighs 0.03 beside
the words, and half of the looks in training are at the expectation, as in the paper: with a weight of
1 and samples alone the policy does not learn in this time.
"""

from typing import Any

from attnlab.config import choose
from attnlab.experiments import Claim, Experiment, better, rows

KINDS = {
    "soft": "softmax",
    "hard": "hard",
    "straight-through": "straight_through",
    "Gumbel": "gumbel",
}


def get_experiment(argument: str = "") -> Experiment:
    """One of the two experiments.

    Raises:
      UserError: the argument is neither "dates" nor "captions".
    """
    tasks = {"dates": dates, "captions": captions}
    return choose(argument or "dates", tasks, "experiments/hard.py", "experiment")()


def dates() -> Experiment:
    """A translator with attention (Bahdanau et al. 2015), on dates."""
    small = {f"system.{name}": 32 for name in ("embedding", "encoder", "maxout")}
    base = {
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
    }
    return compared("configs/translation.py:rnnsearch", base, "dates", (0, 1, 2, 3, 4))


def captions() -> Experiment:
    """A captioner (Xu et al. 2015), on scenes of shapes."""
    base = {"training.steps": 1500, "training.evaluate_every": 250}
    hard = {"system.attention.alignment.soft": 0.5, "reinforce.weight": 0.03}
    return compared("configs/captioning.py:show_attend_tell", base, "captions", (0, 1, 2), hard)


def compared(
    config: str,
    base: dict[str, Any],
    texts: str,
    seeds: tuple[int, ...],
    hard: dict[str, Any] | None = None,
) -> Experiment:
    """All kinds of looks in one system; `hard`: how the sampled one is trained, where the defaults
    of `reinforce` are not meant.
    """
    return Experiment(
        question="Is hard attention harder to train than soft attention?",
        config=config,
        base=base,
        compare=rows(
            {
                name: {
                    "system.attention.alignment": kind,
                    **((hard or {}) if kind == "hard" else {}),
                }
                for name, kind in KINDS.items()
            }
        ),
        seeds=seeds,
        baseline="soft",
        measure=("exact", "max"),
        claim=Claim(
            f"Soft attention gets more {texts} right than any kind that looks at one place",
            tuple(better("soft", other) for other in KINDS if other != "soft"),
        ),
    )
