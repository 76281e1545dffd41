"""Which state should ask? Bahdanau's order (the state before the word) against Luong's (the state
after it), equally large.

    python launch.py sweep experiments/asking.py --dir=runs/asking

Bahdanau et al. 2015 ask with the state of the step before, s_{t-1}, and put what is found into the
next state; the output layer sees the new state ("s(t-1)"), or the old one ("s(t-1), old readout",
their appendix). Luong et al. 2015 ask with the present state h_t, and what is found goes straight
to the output; with input feeding it enters the next step too. All have one layer, a bidirectional
encoder, GRUs, the additive score and as many parameters.
"""

from attnlab.experiments import Budget, Claim, Contrast, Experiment, rows


def get_experiment() -> Experiment:
    """The experiment."""
    score: dict[str, object] = {
        "system.attention": "single",
        "system.attention.score": "additive",
        "system.attention.score.hidden": 64,
    }
    luong = {"system": "luong", "system.cell": "gru", "system.directions": 2, **score}
    ways = {
        "s(t-1)": score,
        "s(t-1), old readout": {"system.readout": "previous", **score},
        "h(t), fed": {**luong, "system.feeding": "input"},
        "h(t)": {**luong, "system.feeding": "none"},
    }
    less = {"h(t), fed": -0.5, "h(t)": -0.5, "s(t-1)": 0.5, "s(t-1), old readout": 0.5}
    return Experiment(
        question="Which state should ask, the one before a word or the one after it?",
        config="configs/translation.py:rnnsearch",
        base={
            "data": "grammar",
            "vocabulary.kind": "word",
            "batch.buckets": (32,),
            "batch.max_length": 32,
            "training.steps": 500,
            "decoding.method": "greedy",
        },
        compare=rows(ways),
        seeds=(0, 1, 2, 3, 4),
        baseline="s(t-1)",
        measure=("loss", "min"),
        budget=Budget(
            match="parameters",
            knob="system.maxout",
            knobs={"h(t), fed": "system.width", "h(t)": "system.width"},
            within=0.02,
        ),
        claim=Claim("Asking with the present state gives the smaller loss", (Contrast(less),)),
    )
