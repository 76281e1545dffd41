"""Which positions does a Transformer need, and where? None, and five schemes.

    python launch.py sweep experiments/positions.py --dir=runs/positions
    python launch.py sweep experiments/positions.py:decoder --dir=runs/positions-decoder
    python launch.py sweep experiments/positions.py:longer --dir=runs/positions-longer

Without an argument, or with "sides": an encoder without positions reads a bag of words; a causal
decoder without them can count what it sees (Haviv et al. 2022; Kazemnejad et al. 2023). The
grammar's sentences are reordered, so the encoder must know where words stand. "decoder": a causal
language model of its sentences. "longer": keys and values, where the value of a key that has
occurred can be recalled; trained on texts of 20 words and tested on texts of 40, for Press et al.
2022 say that ALiBi reads on where sinusoidal positions fail.
"""

from __future__ import annotations

from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.experiments import Axis, Budget, Claim, Experiment, better, rows

ADDED = ("sinusoidal", "learned")
INSIDE = ("alibi", "rope", "t5")
SENTENCES: dict[str, Any] = {
    "vocabulary.kind": "word",
    "batch.max_length": 32,
    "system.width": 64,
    "system.hidden": 256,
}


def get_experiment(argument: str = "") -> Experiment:
    """One of the three experiments.

    Raises:
      UserError: the argument is not "sides", "decoder" or "longer".
    """
    known = {"sides": sides, "decoder": decoder, "longer": longer}
    argument = argument or "sides"
    if argument not in known:
        raise UserError(
            f"experiments/positions.py:{argument}: {argument!r}; {nearest(argument, known)}"
        )
    return known[argument]()


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
        base={
            **SENTENCES,
            "data": "grammar",
            "batch.buckets": (32,),
            "training.steps": 600,
            "schedule.peak": 4e-3,
            "schedule.warmup": 100,
            "decoding.method": "greedy",
        },
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
        base={**SENTENCES, "data": "one_side", "training.steps": 600},
        compare=schemes(),
        seeds=(0, 1, 2, 3, 4),
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
            "training.steps": 3000,
            "system.width": 64,
            "system.hidden": 256,
        },
        compare=schemes(),
        seeds=(0, 1, 2, 3, 4),
        baseline="sinusoidal",
        measure=("recall", "max"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.1),
        claim=Claim(
            "ALiBi recalls more beyond the length of training than sinusoidal positions",
            (better("alibi", "sinusoidal"),),
        ),
    )
