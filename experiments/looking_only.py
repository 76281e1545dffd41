"""A language model that only looks back, against one that only remembers: a Transformer and an LSTM
of the same parameters on a text.

    python launch.py sweep experiments/looking_only.py:FOLDER --dir=runs/looking-only

The folder has train.txt, valid.txt and test.txt (plain, .gz or .xz), read word by word as one
stream. The LSTM carries its state from piece to piece. The Transformer of Radford et al. 2018, with
norms in front and rotary positions, sees nothing before its piece; so there are two of it: one with
the LSTM's pieces, and one with pieces four times as long and a quarter of the rows, which sees more
and has as many tokens in a batch. The learning rate of each is the best of three on the validation
split, found with the first seed (`pip install '.[search]'`). The other systems of
`looking_back.py` had the same text, parameters and updates.
"""

from __future__ import annotations

from typing import Any

from attnlab.data.files import find_file
from attnlab.errors import UserError
from attnlab.experiments import Budget, Claim, Experiment, Search, better, choice, rows

TOKENS, PIECE = 1120, 35  # of a batch, of a row


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on the text of the folder in the argument.

    Raises:
      UserError: no folder of texts.
    """
    if not argument:
        raise UserError(
            "experiments/looking_only.py:FOLDER needs a folder of texts behind the colon"
        )
    find_file(argument, "train.txt")
    systems: dict[str, dict[str, Any]] = {
        "LSTM": {"system": "lstm_lm", "system.embedding": 128, **pieces(PIECE)},
        "Transformer": {**TRANSFORMER, **pieces(PIECE)},
        "Transformer, long pieces": {**TRANSFORMER, **pieces(4 * PIECE)},
    }
    return Experiment(
        question="What does a language model that only looks back gain or lose?",
        config="configs/language_modelling.py:lstm",
        base={
            "data": "text",
            "data.directory": argument,
            "vocabulary.kind": "word",
            "vocabulary.size": 10_000,
            "vocabulary.min_frequency": 2,
            "batch.texts": "joined",
            "system.width": 256,
            "system.dropout": 0.3,
            "training.steps": 2000,
            "decoding.batch": 16,
        },
        compare=rows(systems),
        seeds=(0, 1, 2),  # a trial takes minutes
        baseline="LSTM",
        measure=("loss", "min"),
        budget=Budget(
            match="parameters",
            knob="system.width",
            knobs=dict.fromkeys(list(systems)[1:], "system.hidden"),
        ),
        claim=Claim(
            "A Transformer that sees its piece only has a lower loss than an LSTM that has read all",
            (better("Transformer, long pieces", "LSTM"),),
        ),
        search=Search({"schedule.peak": choice(1e-3, 2e-3, 6e-3)}, sampler="grid", trials=3),
    )


TRANSFORMER: dict[str, Any] = {
    "system": "decoder",
    "system.attention": "multihead",
    "system.attention.heads": 4,
    "system.attention.positions": "rope",
    "system.positions": "none",
    "training.output_bias": "zeros",
}


def pieces(length: int) -> dict[str, int]:
    """Rows of so many tokens, and as many of them as a batch has room for."""
    return {"batch.max_length": length, "batch.size": TOKENS // length}
