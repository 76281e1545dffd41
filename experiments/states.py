"""Who can follow a state? Products of elements of a group, four times as long as in training.

    python launch.py sweep experiments/states.py --dir=runs/states
    python launch.py sweep experiments/states.py:permutations --dir=runs/states-permutations
    python -m benchmarks.groups runs/states --png=states.png          accuracy by place in the text

Without an argument, or with "parity": is the number of ones so far even? "permutations": the product
of all permutations of three things so far, S_3. Trained on 16 words, tested on 64, one layer. A
state whose steps only shrink and add (gated linear attention, the delta rule with beta up to 1)
cannot even follow parity for long; with beta up to 2 a step reflects, so a delta rule can (Grazzi et
al. 2025); S_3 needs two reflections for a word (DeltaProduct, Siems et al. 2025) or a recurrence
that is not linear; attention of a fixed depth can neither (Merrill et al. 2024). All have as many
parameters as the LSTM.
"""

from typing import Any

from attnlab.config import choose
from attnlab.experiments import Budget, Claim, Contrast, Experiment, better, rows

SLOT = "system.attention"
DELTA: dict[str, Any] = {"heads": 4, "kernel": 1, "activation": "none"}


def get_experiment(argument: str = "") -> Experiment:
    """One of the two experiments.

    Raises:
      UserError: the argument is neither "parity" nor "permutations".
    """
    groups = {
        "parity": ("parity", ("delta rule, beta to 2", "two reflections", "LSTM")),
        "permutations": ("symmetric", ("two reflections", "LSTM")),
    }
    group, able = choose(argument or "parity", groups, "experiments/states.py", "experiment")
    compared = {
        "softmax": layer("multihead", heads=4),
        "gated linear": layer("gated_linear", heads=4, key_share=1.0),
        "delta rule": layer("delta_net", **DELTA),
        "delta rule, beta to 2": layer("delta_net", **DELTA, largest=2.0),
        "two reflections": layer("delta_product", **DELTA),
        "LSTM": layer("recurrent"),
    }
    return Experiment(
        question=f"Who can follow {argument} beyond the length of training?",
        config="configs/diagnostics.py:multihead",
        base={
            "data": "state_tracking",
            "data.of": group,
            "data.order": 3,
            "data.length": 16,
            "data.tested": 64,
            "batch.buckets": (17, 65),
            "batch.max_length": 65,
            "schedule.peak": 5e-3,
            "training.steps": 1000,
            "training.evaluate_every": 250,
            "system.layers": 1,
            "system.width": 32,
            "system.hidden": 128,
        },
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="softmax",
        measure=("accuracy", "max"),
        budget=Budget(match="parameters", knob="system.hidden", to="LSTM", within=0.02),
        claim=claim(argument, able, tuple(name for name in compared if name not in able)),
    )


def claim(what: str, able: tuple[str, ...], unable: tuple[str, ...]) -> Claim:
    """That each of the first finds more than the mean of the others, and than attention."""
    mean = {name: -1 / len(unable) for name in unable}
    return Claim(
        f"{', '.join(able)} follow {what} further than attention, and than the mean of the others",
        (
            *(better(name, "softmax") for name in able),
            *(Contrast({name: 1.0, **mean}) for name in able),
        ),
    )


def layer(name: str, **settings: Any) -> dict[str, Any]:
    """A mixer with its settings, without positions."""
    return {SLOT: name, **{f"{SLOT}.{key}": value for key, value in settings.items()}}
