"""From words to one vector: mean pooling, attention, several hops and intra-attention, on sentences
or on pairs of them, equally large.

    python launch.py sweep experiments/pooling.py --dir=runs/pooling
    python launch.py sweep experiments/pooling.py:FOLDER:1:2 --dir=runs/pooling-sentences
    python launch.py sweep experiments/pooling.py:FOLDER:1,2:3 --dir=runs/pooling-pairs

A bidirectional LSTM whose outputs are averaged is compared with attention over its outputs, with
the structured self-attentive embedding (Lin et al. 2017) and with the LSTMN (Cheng et al. 2016; of
pairs with shallow and with deep fusion). Without an argument: built-in sentences, whose label is
the sum of two numbers hidden in them; besides, the last states alone, which forget them, and hops
that hardly anything keeps apart. With a folder of tables (train.tsv, valid.tsv, test.tsv, one row
of names) those: the columns of the text, or of both, and of the label. Every system has as many
parameters as the first. On tables the learning rate of every system is the better one of two on the
validation split, found with the first seed (`pip install '.[search]'`).
"""

from typing import Any

from attnlab.errors import UserError
from attnlab.experiments import Budget, Claim, Experiment, Search, better, choice, rows

HOPS = {
    "system": "self_attentive",
    "system.attention": "hops",
    "system.attention.output": "side_by_side",
}


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on hidden numbers, or on the tables of the folder in the argument.

    Raises:
      UserError: the columns cannot be read.
    """
    folder, texts, label = _columns(argument)
    pairs = len(texts) == 2
    width, dropout = (128, 0.3) if folder else (32, 0.0)
    units = (
        32 if folder and not pairs else 64
    )  # of the first system each way, and of every scoring layer
    systems = those(width, units, dropout, pairs)
    claim = Claim(
        "Several looks at a sentence beat the mean of its words", (better("four hops", "mean"),)
    )
    if not folder:
        systems["four hops, hardly a penalty"] = {
            **systems["four hops"],
            "auxiliary.hops": 1e-6,
        }  # none at all is refused, as forgotten
        systems["last states"] = {**systems["mean"], "system.pooling": "last"}
        claim = Claim(
            "Who looks at all words finds what the last states forget",
            (better("four hops", "last states", by=0.4),),
        )
    return Experiment(
        question="How is a sentence best made one vector?",
        config=f"configs/{'inference' if pairs else 'classification'}.py:bilstm_pooling",
        base={"system.width": units, **(of_tables(folder, texts, label) if folder else {})},
        compare=rows(systems),
        seeds=(0, 1, 2),  # a trial takes a minute or more
        baseline="mean",
        measure=("accuracy", "max"),
        select=("accuracy", "max"),
        claim=claim,
        budget=Budget(match="parameters", knob="system.width"),
        search=(
            Search({"schedule.peak": choice(1e-3, 4e-3)}, sampler="grid", trials=2)
            if folder
            else None
        ),
    )


def those(width: int, units: int, dropout: float, pairs: bool) -> dict[str, dict[str, Any]]:
    """The systems that are compared everywhere."""
    sizes = {"system.embedding": width, "system.dropout": dropout}
    hidden = {"system.hidden": width, **sizes}
    look = {
        "system.attention": "single",
        "system.attention.score": "additive",
        "system.attention.score.hidden": units,
    }
    hops = {
        **HOPS,
        "system.attention.hops": 4,
        "system.attention.hidden": units,
        "auxiliary.hops": 0.01,
    }
    systems: dict[str, dict[str, Any]] = {
        "mean": {"system": "bilstm_pooling", "system.pooling": "mean", **hidden},
        "attention": {"system": "attention_pooling", **look, **hidden},
        "four hops": {**hops, **hidden},
    }
    intra = {**look, **sizes}
    if pairs:
        both = {
            "system": "lstmn_pair",
            **{name.replace("attention", "inter_attention"): value for name, value in look.items()},
            **intra,
        }
        systems |= {
            f"LSTMN, {fusion}": {**both, "system.fusion": fusion} for fusion in ("shallow", "deep")
        }
    else:
        systems["LSTMN"] = {"system": "lstmn_classifier", **intra}
    return systems


def _columns(argument: str) -> tuple[str, list[int], int]:
    """Folder, columns of the texts and column of the label."""
    if not argument:
        return "", [1], 2
    try:
        folder, texts, label = argument.rsplit(":", 2)
        columns = [int(column) for column in texts.split(",")]
        number = int(label)
    except ValueError:
        columns = []
    if len(columns) not in (1, 2):
        raise UserError(
            f"experiments/pooling.py:{argument}: expected FOLDER:COLUMN:LABEL or"
            " FOLDER:COLUMN,COLUMN:LABEL, columns from 1"
        )
    return folder, columns, number


def of_tables(folder: str, texts: list[int], label: int) -> dict[str, Any]:
    """Tables with one row of names."""
    second = texts[1] if len(texts) == 2 else 0
    return {
        "data": "table",
        "data.directory": folder,
        "data.header": 1,
        "data.source": texts[0],
        "data.target": second,
        "data.label": label,
        "vocabulary.min_frequency": 2,
        "batch.buckets": (12, 16, 24, 32, 48, 64, 96),
        "batch.max_length": 96,
        "training.steps": 1000,
        "training.evaluate_every": 125,
    }
