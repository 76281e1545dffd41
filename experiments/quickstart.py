"""Is a look at the source worth it? Four ways of attending and none, equally large, three seeds
each, on the built-in dates.

    python launch.py sweep experiments/quickstart.py --dir=runs/quickstart

RNNsearch (Bahdanau et al. 2015) with the attentions of Bahdanau (additive), Luong et al. 2015 (dot,
location) and Vaswani et al. 2017 (multihead), against the RNN Encoder-Decoder (Cho et al. 2014),
whose decoder has one vector of fixed size and nothing to look at. All are small and 400 steps are
few, so that it takes minutes on two CPU cores: the table says how fast dates are learnt, not how
well. Why the claim should hold: without attention the vector has to keep every digit of the date
until its turn comes.
"""

from typing import Any

from attnlab.experiments import Budget, Claim, Contrast, Experiment, rows

ATTENTIONS: dict[str, dict[str, Any]] = {
    "additive": {"system.attention.score.hidden": 32},
    "dot": {"system.attention.score": "dot"},
    "location": {"system.attention.score": "location", "system.attention.score.limit": 32},
    "multihead": {"system.attention": "multihead", "system.attention.heads": 4},
}
NONE: dict[str, Any] = {"system": "rnn_encoder_decoder", "system.encoder": 64}


def get_experiment() -> Experiment:
    """The experiment."""
    sizes = {
        "system.embedding": 32,
        "system.encoder": 32,
        "system.decoder": 64,
        "system.maxout": 32,
    }
    contrast = {**{name: 1 / len(ATTENTIONS) for name in ATTENTIONS}, "none": -1.0}
    return Experiment(
        question=(
            "Does it pay to look at the source before every word, and which way of looking is"
            " learnt fastest?"
        ),
        config="configs/translation.py:rnnsearch",
        base={
            **sizes,
            "data.examples": 10_000,
            "data.valid": 500,
            "batch.buckets": (30,),  # the longest date has 28 characters
            "batch.max_length": 30,
            "training.steps": 400,
            "training.evaluate_every": 100,
            "schedule.peak": 5e-3,
            "schedule.warmup": 40,
            "checkpoint.every": 200,
            "decoding.method": "greedy",
        },
        compare=rows({"none": NONE, **ATTENTIONS}),
        seeds=(0, 1, 2),
        baseline="none",
        measure=("exact", "max"),
        budget=Budget(match="parameters", knob="system.maxout", to="multihead"),
        claim=Claim(
            "On average, attention gets at least a tenth more of the dates right than none",
            (Contrast(contrast, at_least=0.1),),
        ),
    )
