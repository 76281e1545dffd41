"""Which reader tags best: a bidirectional LSTM, or self-attention; and does it help to be told the
tree?

    python launch.py sweep experiments/readers.py --dir=runs/tags
    python launch.py sweep experiments/readers.py:FOLDER --dir=runs/tags-treebank

Without an argument kind and number of words of the made-up language, whose number may show far off
only. The folder has train.conllu, dev.conllu and test.conllu of Universal Dependencies (plain, .gz
or .xz), whose part-of-speech tags are asked for. The encoder has sinusoidal positions, Shaw et al.
2018's relative ones, or those and relative ones in the dependency tree (Wang et al. 2019), which is
given with the sentence: what a tree tells of tags, not what a parser would. On a folder the learning
rate of each is the better of two on the validation split, found with the first seed.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Experiment, Search, better, choice, rows

ENCODER: dict[str, Any] = {
    "system": "encoder",
    "system.attention": "multihead",
    "system.attention.heads": 4,
    "system.width": 64,
}
INSIDE = "system.attention.positions"


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on made-up sentences, or on the treebank in a folder.

    Raises:
      UserError: no such treebank.
    """
    relative = {**ENCODER, "system.positions": "none"}
    systems: dict[str, dict[str, Any]] = {
        "BiLSTM": {"system": "bilstm_tagger"},
        "encoder": {**ENCODER, "system.positions": "sinusoidal"},
        "encoder, Shaw": {**relative, INSIDE: "shaw", f"{INSIDE}.clip": 8},
        "encoder, tree": {**relative, INSIDE: "syntax_relative", f"{INSIDE}.clip": 8},
    }
    return Experiment(
        question="Which reader tags best?",
        config="configs/tagging.py:bilstm",
        base=of_treebank(argument) if argument else of_grammar(),
        compare=rows(systems),
        seeds=(0, 1, 2),
        baseline="BiLSTM",
        measure=("accuracy", "max"),
        budget=Budget(
            match="parameters",
            knob="system.width",
            knobs=dict.fromkeys(list(systems)[1:], "system.hidden"),
        ),
        claim=Claim(
            "Relative positions tag better than absolute ones, and given trees better still",
            (better("encoder, Shaw", "encoder"), better("encoder, tree", "encoder, Shaw")),
        ),
        search=(
            Search({"schedule.peak": choice(1e-3, 3e-3)}, sampler="grid", trials=2)
            if argument
            else None
        ),
    )


def of_grammar() -> dict[str, Any]:
    """Few sentences, so that there is something left to be wrong about."""
    return {"data.examples": 500, "training.steps": 400, "schedule.peak": 1e-3}


def of_treebank(folder: str) -> dict[str, Any]:
    """The treebank in a folder; sentences of more than 62 words are left out of training."""
    find_file(folder, "train.conllu")
    return {
        "data": "conllu",
        "data.directory": folder,
        "vocabulary.min_frequency": 2,
        "vocabulary.lowercase": True,
        "batch.buckets": (16, 32, 64),
        "batch.max_length": 64,
        "system.dropout": 0.2,
        "training.steps": 1000,
    }
