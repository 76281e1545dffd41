"""Long texts: what do cheaper forms of attention save, and what do they cost in accuracy?

    python launch.py sweep experiments/long_texts.py --dir=runs/long-texts
    python launch.py sweep experiments/long_texts.py:FOLDER --dir=runs/long-texts-real

An encoder of two layers that classifies texts. Exact attention; Linformer, which projects keys and
values to 32 rows (Wang et al. 2020); Performer with 64 positive random features (Choromanski et al.
2021); Longformer with a window of 32 and a global token (Beltagy et al. 2020); Nystromformer with 32
landmarks (Xiong et al. 2021). All get as many parameters by their feed-forward layers. Without an
argument the hidden numbers, 64 words, and a quarter of those sizes. With a folder (train.tsv,
valid.tsv, test.tsv: text, label; plain, .gz or .xz) its texts character by character; none may have
more than 255. `timing.jsonl` of each run has the seconds of a step.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Experiment, better, rows

SLOT = "system.attention"


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on hidden numbers, or on the texts of the folder in the argument.

    Raises:
      UserError: no such folder of texts.
    """
    length, size = (256, 32) if argument else (64, 8)
    mechanisms: dict[str, tuple[str, dict[str, Any]]] = {
        "exact": ("multihead", {}),
        "Linformer": ("linformer", {"rank": size, "length": length + 1, "share": "key_value"}),
        "Performer": ("performer", {"features": 2 * size}),
        "Longformer": ("longformer", {"window": size}),
        "Nystromformer": ("nystrom", {"landmarks": size}),
    }
    compared = {
        label: {SLOT: name, **{f"{SLOT}.{key}": value for key, value in settings.items()}}
        for label, (name, settings) in mechanisms.items()
    }
    return Experiment(
        question="What do cheaper forms of attention cost in accuracy?",
        config="configs/classification.py:transformer",
        base={
            **(of_table(argument, length) if argument else {"training.steps": 600}),
            "system.positions.length": length + 1,
            f"{SLOT}.heads": 4,
        },
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="exact",
        measure=("accuracy", "max"),
        budget=Budget(match="parameters", knob="system.hidden", within=0.02),
        claim=Claim(
            "A sliding window with a global token is more often right than a projection of low rank",
            (better("Longformer", "Linformer"),),
        ),
    )


def of_table(folder: str, length: int) -> dict[str, Any]:
    """The texts of a folder."""
    find_file(folder, "train.tsv")
    return {
        "data": "table",
        "data.directory": folder,
        "data.source": 1,
        "data.target": 0,
        "data.label": 2,
        "vocabulary.kind": "char",
        "vocabulary.size": 200,
        "batch.max_length": length,
        "batch.buckets": (length,),
        "batch.size": 16,
        "training.steps": 800,
        "training.evaluate_every": 200,
    }
