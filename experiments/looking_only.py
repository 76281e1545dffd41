"""A language model that only looks back, against one that only remembers: a Transformer and an LSTM
of the same parameters on a text.

    python launch.py sweep experiments/looking_only.py --dir=runs/looking-only
    python launch.py sweep experiments/looking_only.py:FOLDER --dir=runs/looking-only-words

The folder has train.txt, valid.txt and test.txt (plain, .gz or .xz), read word by word as one
stream; without one, sentences of the grammar. The LSTM carries its state from piece to piece. The
Transformer of Radford et al. 2018, with norms in front and rotary positions, sees nothing before
its piece. So there are two of each: with short pieces, and with pieces four times as long and a
quarter of the rows, from which the Transformer sees more, and a batch has as many tokens. On a
folder the learning rate of each is the best of three on the validation split, found with the first
seed (`pip install '.[search]'`). The other systems of `looking_back.py` had the same text,
parameters and updates.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Experiment, Search, better, choice, rows

TOKENS, PIECE = 1120, 35  # of a batch, of a row


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on sentences of the grammar, or on the text of the folder in the argument.

    Raises:
      UserError: no such folder of texts.
    """
    width = 256 if argument else 64
    lstm: dict[str, Any] = {"system": "lstm_lm", "system.embedding": width // 2}
    transformer = {**TRANSFORMER, "system.layers": 2 if argument else 1}
    systems: dict[str, dict[str, Any]] = {
        "LSTM": {**lstm, **pieces(PIECE)},
        "LSTM, long pieces": {**lstm, **pieces(4 * PIECE)},
        "Transformer": {**transformer, **pieces(PIECE)},
        "Transformer, long pieces": {**transformer, **pieces(4 * PIECE)},
    }
    return Experiment(
        question="What does a language model that only looks back gain or lose?",
        config="configs/language_modelling.py:lstm",
        base={
            **(of_text(argument) if argument else {"data": "one_side", "training.steps": 600}),
            "vocabulary.kind": "word",
            "batch.texts": "joined",
            "system.width": width,
        },
        compare=rows(systems),
        seeds=(0, 1, 2),  # a trial takes minutes
        baseline="LSTM",
        measure=("loss", "min"),
        budget=Budget(
            match="parameters",
            knob="system.width",
            knobs=dict.fromkeys(list(systems)[2:], "system.hidden"),
        ),
        claim=Claim(
            "A Transformer that sees its piece only has a lower loss than an LSTM that has read all",
            (better("Transformer, long pieces", "LSTM"),),
        ),
        search=(
            Search({"schedule.peak": choice(1e-3, 2e-3, 6e-3)}, sampler="grid", trials=3)
            if argument
            else None
        ),
    )


def of_text(folder: str) -> dict[str, Any]:
    """The text of a folder."""
    find_file(folder, "train.txt")
    return {
        "data": "text",
        "data.directory": folder,
        "vocabulary.size": 10_000,
        "vocabulary.min_frequency": 2,
        "system.dropout": 0.3,
        "training.steps": 2000,
        "decoding.batch": 16,
    }


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
