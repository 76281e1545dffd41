"""Language models of one size whose layers remember in different ways: softmax attention, and every
family of states of one size.

    python launch.py sweep experiments/families.py --dir=runs/families
    python launch.py sweep experiments/families.py:FOLDER --dir=runs/families-text

Without an argument sentences of the grammar, word by word. With a folder (train.txt, valid.txt,
test.txt; plain, .gz or .xz) its text character by character, in rows of 128 that begin anywhere. A
decoder of two layers; what differs is the mixer, and the hidden width of its feed-forward layers, by
which all get as many parameters. Softmax attention has rotary positions, the others none.
Mamba, TTT-linear and the delta rules but RWKV-7 have their short convolutions. All have one
learning rate.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Contrast, Experiment, rows

SLOT = "system.attention"
DELTA = ("delta_net", "gated_delta_net", "kda", "delta_product", "rwkv7")
ADDING = ("linear", "retention", "gated_linear", "mamba", "mlstm")


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on sentences of the grammar, or on the text of the folder in the argument.

    Raises:
      UserError: no such folder of texts.
    """
    width = 64 if argument else 32
    heads = 4 if argument else 2
    size = width // heads
    extra: dict[str, dict[str, Any]] = {
        "softmax": {"heads": heads, "positions": "rope"},
        "mamba": {"head_width": size, "state": size},
        "gated_delta_net": {"heads": heads, "expansion": 1, "key_share": 1.0},
        "LSTM": {},
    }
    mixers = {"softmax": "multihead", "LSTM": "recurrent"}
    compared = {
        name: {
            SLOT: mixers.get(name, name),
            **{f"{SLOT}.{key}": value for key, value in extra.get(name, {"heads": heads}).items()},
        }
        for name in ("softmax", *ADDING, *DELTA, "ttt_linear", "LSTM")
    }
    return Experiment(
        question="Which memory of one size makes the best language model?",
        config="configs/language_modelling.py:decoder",
        base={
            **(of_text(argument) if argument else {"data": "one_side", "training.steps": 600}),
            "system.positions": "none",
            "system.layers": 2,
            "system.width": width,
            "system.hidden": 8 * width,
        },
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="softmax",
        measure=("loss", "min"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.02),
        claim=Claim(
            "On average delta rules have a lower loss than states that only add",
            (
                Contrast(
                    {
                        **{name: 1 / len(ADDING) for name in ADDING},
                        **{name: -1 / len(DELTA) for name in DELTA},
                    }
                ),
            ),
        ),
    )


def of_text(folder: str) -> dict[str, Any]:
    """The text of a folder."""
    find_file(folder, "train.txt")
    return {
        "data": "text",
        "data.directory": folder,
        "vocabulary.kind": "char",
        "vocabulary.size": 1000,
        "batch.texts": "crops",
        "batch.max_length": 128,
        "batch.size": 16,
        "training.steps": 800,
        "training.evaluate_every": 200,
        "schedule.peak": 4e-3,
        "decoding.batch": 16,
    }
