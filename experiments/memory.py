"""How many pairs does a state hold, and which of them? An LSTM against an LSTMN of the same
parameters, as there is more to remember.

    python launch.py sweep experiments/memory.py --dir=runs/memory
    python launch.py sweep experiments/memory.py:age --dir=runs/memory-age

Cheng et al. 2016 give a recurrence a tape of all its states instead of one, and attention to it.
The texts are pairs of a key and a value and then a key, whose value is asked for. With `span` 1 and
no slot of zeros attention has nothing to choose: that LSTMN is an LSTM, with weights of its
attention that do nothing. Both are asked by their last state, for the mean of all states would be a
memory too. With "age": both learn from texts that ask for any pair, and are tested with those that
ask for the first or for the last. The claim is a difference of differences: what is late in a text
is of more use to an LSTM than to an LSTMN.
"""

from typing import Any

from attnlab.config import choose
from attnlab.experiments import Axis, Claim, Contrast, Experiment, better, cross, rows

FEW, MANY = 4, 16  # pairs
SYSTEMS = rows({"LSTM": {"system.span": 1, "system.origin": "none"}, "LSTMN": {}})


def get_experiment(argument: str = "") -> Experiment:
    """One of the two experiments.

    Raises:
      UserError: the argument is neither "pairs" nor "age".
    """
    experiments = {"pairs": pairs, "age": age}
    return choose(argument or "pairs", experiments, "experiments/memory.py", "experiment")()


def pairs() -> Experiment:
    """Few and many pairs."""
    claim = Claim(
        f"An LSTMN finds one of {MANY} pairs that an LSTM loses",
        (better(f"LSTMN, {MANY} pairs", f"LSTM, {MANY} pairs", by=0.4),),
    )
    counts = rows({f"{count} pairs": {"data.pairs": count} for count in (FEW, MANY)})
    return experiment(MANY, {}, counts, claim)


def age() -> Experiment:
    """The first and the last of eight pairs."""
    late = {"LSTM, last": 1.0, "LSTM, first": -1.0, "LSTMN, last": -1.0, "LSTMN, first": 1.0}
    claim = Claim(
        "An LSTM favours what it has read last, more than an LSTMN does",
        (better("LSTM, last", "LSTM, first", by=0.05), Contrast(late, 0.05)),
    )
    places = rows({place: {"data.tested": place} for place in ("first", "last")})
    return experiment(8, {"data.pairs": 8, "training.steps": 3000}, places, claim)


def experiment(most: int, base: dict[str, Any], axis: Axis, claim: Claim) -> Experiment:
    """Both systems at every point of an axis; texts have up to `most` pairs."""
    return Experiment(
        question="How much can be found again in one state, how much on a tape of states?",
        config="configs/classification.py:lstmn_classifier",
        base={
            "data": "lookup",
            "data.examples": 50_000,
            "system.pooling": "last",
            "system.deviation": 1.0,
            "batch.buckets": (most + 2,),
            "batch.max_length": most + 2,
            "schedule": "constant",
            "schedule.peak": 3e-3,
            "training.steps": 4000,
            "training.evaluate_every": 500,
            **base,
        },
        compare=cross(SYSTEMS, axis),
        seeds=(0, 1, 2),  # a trial takes about a minute
        baseline=f"LSTM, {axis[-1].name}",
        measure=("accuracy", "max"),
        select=("accuracy", "max"),
        claim=claim,
    )
