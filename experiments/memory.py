"""How many pairs does a state hold? An LSTM against an LSTMN of the same parameters, as there is
more to remember.

    python launch.py sweep experiments/memory.py --dir=runs/memory

Cheng et al. 2016 give a recurrence a tape of all its states instead of one, and attention to it.
The texts are pairs of a key and a value and then a key, whose value is asked for. With `span` 1 and
no slot of zeros attention has nothing to choose: that LSTMN is an LSTM, with weights of its
attention that do nothing. Both are asked by their last state, for the mean of all states would be a
memory too.
"""

from __future__ import annotations

from attnlab.errors import UserError
from attnlab.experiments import Claim, Experiment, better, cross, rows

FEW, MANY = 4, 16  # pairs


def get_experiment(argument: str = "") -> Experiment:
    """The experiment; it takes no argument, and raises `UserError` if it is given one."""
    if argument:
        raise UserError(
            f"experiments/memory.py:{argument}: it takes no argument, leave out ':{argument}'"
        )
    systems = rows({"LSTM": {"system.span": 1, "system.origin": "none"}, "LSTMN": {}})
    pairs = rows({f"{count} pairs": {"data.pairs": count} for count in (FEW, MANY)})
    return Experiment(
        question="How much can be found again in one state, how much on a tape of states?",
        config="configs/classification.py:lstmn_classifier",
        base={
            "data": "lookup",
            "data.examples": 50_000,
            "system.pooling": "last",
            "system.deviation": 1.0,
            "batch.buckets": (MANY + 2,),
            "batch.max_length": MANY + 2,
            "schedule": "constant",
            "schedule.peak": 3e-3,
            "training.steps": 4000,
            "training.evaluate_every": 500,
        },
        compare=cross(systems, pairs),
        seeds=(0, 1, 2),  # a trial takes about a minute
        baseline=f"LSTM, {MANY} pairs",
        measure=("accuracy", "max"),
        select=("accuracy", "max"),
        claim=Claim(
            f"An LSTMN finds one of {MANY} pairs that an LSTM loses",
            (better(f"LSTMN, {MANY} pairs", f"LSTM, {MANY} pairs", by=0.4),),
        ),
    )
