"""What can a layer find again? Recall of pairs against the size of a state, with one softmax layer
among recurrent ones, and over a distance.

    python launch.py sweep experiments/recall.py --dir=runs/recall
    python launch.py sweep experiments/recall.py:tuned --dir=runs/recall-tuned
    python launch.py sweep experiments/recall.py:capacity --dir=runs/recall-capacity
    python launch.py sweep experiments/recall.py:hybrids --dir=runs/recall-hybrids
    python launch.py sweep experiments/recall.py:distance --dir=runs/recall-distance
    python -m benchmarks.groups runs/recall-tuned --png=recall.png          accuracy by number of pairs, or by distance

Without an argument, or with "pairs": multi-query associative recall (Arora et al. 2024), 1 to 8
pairs in 32 words. Two layers: a gated convolution, by which a word sees the one before it, and what
is compared. Matrices as states have 2 heads of 16 x 16 numbers (TTT-linear has two of them, weights
and the sums of a mini-batch); softmax attention keeps 64 numbers of each word. The LSTM has as many
parameters as the others, and so a state of 64 numbers only. Narrow keys must be free to be
negative, so the delta rules have no SiLU. "tuned": the learning rate of each
row is the better one of two on the validation split, found with the first seed. "capacity": four
heads, whose keys have as many numbers (8) as there are pairs; feed-forward layers twice as wide and
twice the updates, for a run that stays at guessing says nothing about its state. "hybrids": four layers of
such a state, against the same with softmax attention, of the whole text or of the last 8 words, in
one of them. "distance": one of 12 pairs is asked for at the end; a recurrence, stacks of
convolutions of two depths, attention.
"""

import dataclasses
from typing import Any

from attnlab.config import choose
from attnlab.experiments import Budget, Claim, Experiment, Search, better, choice, rows

WIDTH, HEADS = 32, 2
SAME = Budget(match="parameters", knob="system.hidden", within=0.02)
SLOT = "system.attention"
DELTA: dict[str, Any] = {"heads": HEADS, "kernel": 1, "activation": "none"}
SQUARE: dict[str, Any] = {"key_share": 1.0, "expansion": 1}  # keys as wide as values


def get_experiment(argument: str = "") -> Experiment:
    """One of the five experiments.

    Raises:
      UserError: the argument is not "pairs", "tuned", "capacity", "hybrids" or "distance".
    """
    experiments = {
        "pairs": pairs,
        "tuned": tuned,
        "capacity": capacity,
        "hybrids": hybrids,
        "distance": distance,
    }
    return choose(argument or "pairs", experiments, "experiments/recall.py", "experiment")()


def pairs() -> Experiment:
    """Mixers with states of one size, and softmax attention."""
    compared = {
        "softmax": layer("multihead", heads=HEADS),
        "linear": layer("linear", heads=HEADS),
        "gated linear": layer("gated_linear", heads=HEADS, key_share=1.0),
        "mLSTM": layer("mlstm", heads=HEADS, key_share=1.0),
        "delta rule": layer("delta_net", **DELTA),
        "gated delta rule": layer("gated_delta_net", **DELTA, **SQUARE),
        "TTT-linear": layer("ttt_linear", heads=HEADS, kernel=1),
        "LSTM": layer("recurrent"),
    }
    return Experiment(
        question="How many pairs does a state of one size hold?",
        config="configs/diagnostics.py:multihead",
        base={**many_pairs(1200), "schedule.peak": 5e-3},
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="linear",
        measure=("accuracy", "max"),
        budget=SAME,
        claim=Claim(
            "Attention finds more than the delta rule, and this more than linear attention",
            (better("softmax", "delta rule"), better("delta rule", "linear")),
        ),
    )


def tuned() -> Experiment:
    """The same with a rate for each row."""
    rates = Search({"schedule.peak": choice(2.5e-3, 5e-3)}, sampler="grid", trials=2)
    return dataclasses.replace(pairs(), search=rates)


def capacity() -> Experiment:
    """As many pairs as a key of the states has numbers."""
    narrow: dict[str, Any] = {**DELTA, "heads": 4}
    compared = {
        "softmax": layer("multihead", heads=4),
        "linear": layer("linear", heads=4),
        "delta rule": layer("delta_net", **narrow),
        "gated delta rule": layer("gated_delta_net", **narrow, **SQUARE),
    }
    return Experiment(
        question="Who loses pairs when there are as many as a key has numbers?",
        config="configs/diagnostics.py:multihead",
        base={**many_pairs(2400), "schedule.peak": 5e-3, "system.hidden": 4 * WIDTH},
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="linear",
        measure=("accuracy", "max"),
        budget=SAME,
        claim=Claim(
            "Attention finds more than linear attention, and so does the delta rule",
            (better("softmax", "linear"), better("delta rule", "linear")),
        ),
    )


def hybrids() -> Experiment:
    """Four layers after the convolution: a gated delta rule, and one of them softmax attention."""
    state: dict[str, Any] = {"name": "gated_delta_net", **DELTA, **SQUARE, "kernel": 2}
    first: tuple[str, ...] = ("one", "other", "other", "other")
    last = first[::-1]
    whole = {**by_layer("multihead", state, last), f"{SLOT}.one.heads": HEADS}
    window = {
        "system.visibility": "by_layer",
        "system.visibility.pattern": last,
        "system.visibility.one": "window",
        "system.visibility.one.width": 8,
        "system.visibility.other": "full",
    }
    compared: dict[str, dict[str, Any]] = {
        "delta rule": {**layer(**state), f"{SLOT}.pattern": ("other",), "system.layers": 4},
        "one softmax layer": whole,
        "one window": {**whole, **window},
        "softmax": by_layer("convolution", {"name": "multihead", "heads": HEADS}, first),
    }
    return Experiment(
        question="What does one softmax layer bring to layers with a state of one size?",
        config="configs/diagnostics.py:multihead",
        base={**many_pairs(1000), "schedule.peak": 5e-3},
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="delta rule",
        measure=("accuracy", "max"),
        budget=SAME,
        claim=Claim(
            "One softmax layer in four finds more than none",
            (better("one softmax layer", "delta rule"),),
        ),
    )


def distance() -> Experiment:
    """One question at the end: what is as near for every layer, and what is far for some."""
    compared: dict[str, dict[str, Any]] = {
        "LSTM": {SLOT: "recurrent", "system.layers": 2},
        "convolutions, 2 layers": {SLOT: "convolution", "system.layers": 2},
        "convolutions, 4 layers": {SLOT: "convolution", "system.layers": 4},
        "attention": layer("multihead", heads=HEADS),
    }
    return Experiment(
        question="How far back does a layer find what it has read?",
        config="configs/diagnostics.py:multihead",
        base={
            "data": "associative_recall",
            "data.pairs": 12,
            "data.keys": 12,
            "batch.buckets": (27,),
            "batch.max_length": 27,
            "schedule.peak": 5e-3,
            **sizes(1500),
            "system.hidden": 4 * WIDTH,
        },
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="LSTM",
        measure=("accuracy", "max"),
        budget=SAME,
        claim=Claim(
            "Attention finds more than four layers of convolutions, and these more than two",
            (
                better("attention", "convolutions, 4 layers"),
                better("convolutions, 4 layers", "convolutions, 2 layers"),
            ),
        ),
    )


def sizes(steps: int) -> dict[str, Any]:
    """What all three share."""
    return {
        "system.width": WIDTH,
        "system.hidden": 2 * WIDTH,
        "training.steps": steps,
        "training.evaluate_every": steps // 4,
    }


def many_pairs(steps: int) -> dict[str, Any]:
    """Texts of 32 words with 1 to 8 pairs."""
    data = {"length": 32, "symbols": 32, "fewest": 1, "pairs": 8, "by": "pairs"}
    return {
        **{f"data.{name}": value for name, value in data.items()},
        "batch.buckets": (33,),
        "batch.max_length": 33,
        **sizes(steps),
    }


def layer(name: str, **settings: Any) -> dict[str, Any]:
    """A mixer with its settings behind a convolution over two words."""
    return by_layer("convolution", {"name": name, **settings}, ("one", "other"))


def by_layer(one: str, other: dict[str, Any], pattern: tuple[str, ...]) -> dict[str, Any]:
    """One mixer where the pattern says "one", another, with its settings, where it says "other"."""
    return {
        "system.layers": len(pattern),
        SLOT: "by_layer",
        f"{SLOT}.pattern": pattern,
        f"{SLOT}.one": one,
        **({f"{SLOT}.one.kernel": 2} if one == "convolution" else {}),
        **{
            f"{SLOT}.other{'' if key == 'name' else '.' + key}": value
            for key, value in other.items()
        },
    }
