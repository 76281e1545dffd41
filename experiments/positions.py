"""Which positions does a Transformer need, and where? None, and five schemes; added or beside.

    python launch.py sweep experiments/positions.py --dir=runs/positions
    python launch.py sweep experiments/positions.py:decoder --dir=runs/positions-decoder
    python launch.py sweep experiments/positions.py:longer --dir=runs/positions-longer
    python launch.py sweep experiments/positions.py:beside --dir=runs/positions-beside

Without an argument, or with "sides": an encoder without positions reads a bag of words; a causal
decoder without them can count what it sees (Haviv et al. 2022; Kazemnejad et al. 2023). The
grammar's sentences are reordered, so the encoder must know where words stand. "decoder": a causal
language model of its sentences. "longer": keys and values, where the value of a key that has
occurred can be recalled; trained on texts of 20 words and tested on texts of 40, for Press et al.
2022 say that ALiBi reads on where sinusoidal positions fail. "beside": positions added to
embeddings of words (Vaswani et al. 2017), against a quarter of the width for positions alone and the
rest for words.
"""

from typing import Any

from attnlab.config import choose
from attnlab.experiments import Axis, Budget, Claim, Contrast, Experiment, better, cross, rows

ADDED = ("sinusoidal", "learned")
INSIDE = ("alibi", "rope", "t5")
SENTENCES: dict[str, Any] = {
    "vocabulary.kind": "word",
    "batch.max_length": 32,
    "system.width": 64,
    "system.hidden": 256,
}


def get_experiment(argument: str = "") -> Experiment:
    """One of the four experiments.

    Raises:
      UserError: the argument is not "sides", "decoder", "longer" or "beside".
    """
    experiments = {"sides": sides, "decoder": decoder, "longer": longer, "beside": beside}
    return choose(argument or "sides", experiments, "experiments/positions.py", "experiment")()


def translation(steps: int) -> dict[str, Any]:
    """What experiments on the translation of the grammar share."""
    return {
        **SENTENCES,
        "data": "grammar",
        "batch.buckets": (32,),
        "training.steps": steps,
        "schedule.peak": 4e-3,
        "schedule.warmup": 100,
        "decoding.method": "greedy",
    }


def sides() -> Experiment:
    """Encoder and decoder with the same positions, and one of them without."""
    none: dict[str, Any] = {"system.positions": "none"}
    slots = {side: f"system.{side}_attention.positions" for side in ("encoder", "decoder")}
    compared: dict[str, dict[str, Any]] = {
        "none": none,
        **{name: {"system.positions": name} for name in ADDED},
        **{name: {**none, **dict.fromkeys(slots.values(), name)} for name in INSIDE},
        "rope, not in the encoder": {**none, slots["decoder"]: "rope"},
        "rope, not in the decoder": {**none, slots["encoder"]: "rope"},
    }
    return Experiment(
        question="Which side of a Transformer needs positions?",
        config="configs/translation.py:transformer",
        base=translation(600),
        compare=rows(compared),
        seeds=(0, 1, 2, 3, 4),
        baseline="none",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.05),
        claim=Claim(
            "An encoder without positions costs more than a causal decoder without",
            (better("rope, not in the decoder", "rope, not in the encoder", by=0.1),),
        ),
    )


def schemes() -> Axis:
    """The schemes of a decoder-only model."""
    inside = "system.attention.positions"
    return rows(
        {
            "none": {"system.positions": "none"},
            **{name: {"system.positions": name} for name in ADDED},
            **{name: {"system.positions": "none", inside: name} for name in INSIDE},
        }
    )


def decoder() -> Experiment:
    """A causal language model of the grammar's sentences."""
    return Experiment(
        question="Does a causal decoder need positions?",
        config="configs/language_modelling.py:decoder",
        base={**SENTENCES, "data": "one_side", "training.steps": 400},
        compare=schemes(),
        seeds=(0, 1, 2),
        baseline="none",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.05),
        claim=Claim(
            "Every scheme has a lower loss than none",
            tuple(better(name, "none") for name in (*ADDED, *INSIDE)),
        ),
    )


def longer() -> Experiment:
    """Trained on 20 words, tested on 40."""
    return Experiment(
        question="Which positions hold beyond the length of training?",
        config="configs/language_modelling.py:decoder",
        base={
            "data.length": 20,
            "data.tested": 40,
            "data.keys": 6,
            "schedule.name": "constant",
            "schedule.peak": 2e-3,
            "training.steps": 1500,
            "system.width": 64,
            "system.hidden": 256,
        },
        compare=schemes(),
        seeds=(0, 1, 2),
        baseline="sinusoidal",
        measure=("recall", "max"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.1),
        claim=Claim(
            "ALiBi recalls more beyond the length of training than sinusoidal positions",
            (better("alibi", "sinusoidal"),),
        ),
    )


def beside() -> Experiment:
    """Positions added to 64 numbers of words, and 16 numbers of positions beside 48 of words."""
    places: dict[str, dict[str, Any]] = {
        "added": {"system.position_width": 0},
        "beside": {"system.position_width": 16},
    }
    kinds = {name: {"system.positions": name} for name in ADDED}
    apart = {f"{name}, added": 0.5 for name in ADDED} | {f"{name}, beside": -0.5 for name in ADDED}
    return Experiment(
        question="Should positions be added to words, or stand beside them?",
        config="configs/translation.py:transformer",
        base=translation(500),
        compare=cross(rows(kinds), rows(places)),
        seeds=(0, 1, 2),
        baseline="sinusoidal, added",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.05),
        claim=Claim(
            "On average over both schemes the two ways are no more than 0.05 of loss apart",
            (
                Contrast(apart, -0.05, directed=True),
                Contrast({name: -weight for name, weight in apart.items()}, -0.05, directed=True),
            ),
        ),
    )
