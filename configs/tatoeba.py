"""Tatoeba English to French, sentences joined into longer texts, to look at what the attention
learns about which word is which.

    python launch.py train --config=configs/tatoeba.py:rnnsearch --config.data.of.directory=FOLDER --workdir=runs/tatoeba
    python -m benchmarks.alignment_error runs/tatoeba --gold=GOLD/test

FOLDER holds train.tsv and valid.tsv (plain, .gz or .xz), two columns, English TAB French, as
manythings.org gives them out (CC BY 2.0; 154,000 training pairs of 6 English words on average were
used here). GOLD/test.{en,fr,align} are gold word alignments. Training joins runs of 1 to 4 pairs,
each pair twice, in another run each time: on sentences of six words alone attention need not be
exact. RNNsearch is the one its authors released (`readout`), whose attention knows the word before
the one it looks for. There is no split of its own for the test: its scores are those of the
validation split, which also picks the checkpoint. Arguments: rnnsearch, luong (global attention,
input feeding), luong_local_p, convs2s or transformer. Time on two CPU cores, BLEU and alignment
error rate: docs/results/translation.md.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """GRU 128/256 with additive attention ("rnnsearch"), LSTMs of two layers of 128 with the score
    "general" ("luong", "luong_local_p"), 3+3 convolutions over three words ("convs2s"), or a 2+2
    layer pre-LN Transformer of width 128 ("transformer").
    """
    return merge(SHARED, choose(system, _SYSTEMS, "configs/tatoeba.py"))


TABLE = {"name": "table", "train": "train.tsv", "valid": "valid.tsv", "test": "valid.tsv"}
SHARED = {
    "task": "translation",
    "data": {"name": "joined", "of": TABLE, "most": 4, "copies": 2},
    "vocabulary": {"size": 6000, "lowercase": True},
    "batch": {"buckets": (10, 16, 24, 34, 48, 64), "max_length": 64},
    "optimizer": {"name": "adam", "b2": 0.98},
    "training": {
        "steps": 6500,  # 3.4 times through the joined pairs
        "label_smoothing": 0.1,
        "evaluate_every": 1000,
    },
    "checkpoint": {"every": 500},
    "decoding": {"length_penalty": 1.0, "batch": 128},
}
"""What does not depend on the system."""

RNNSEARCH = {
    "system": {
        "name": "rnnsearch",
        **{"embedding": 128, "encoder": 128, "decoder": 256, "maxout": 128},
        **{"readout": "released", "dropout": 0.1},
        "attention": {"name": "single", "score": {"name": "additive", "hidden": 128}},
    },
    "schedule": {"name": "linear", "peak": 2e-3, "warmup": 200},
}
LUONG = {
    "system": {
        "name": "luong",
        **{"embedding": 128, "width": 128, "layers": 2, "dropout": 0.1},
        "attention": {"name": "single", "score": "general"},
    },
    "schedule": RNNSEARCH["schedule"],
}
LOCAL = merge(LUONG, {"system": {"attention": {"alignment": "local_p"}}})
CONVS2S = {
    "system": {
        "name": "convs2s",
        **{"embedding": 128, "width": 128, "dropout": 0.1},
        "attention": {"name": "single", "score": "dot"},
        "positions": {"name": "learned", "stddev": 0.1},
    },
    "schedule": RNNSEARCH["schedule"],
}
ATTENTION = {"name": "multihead", "heads": 4, "dropout": 0.1}
TRANSFORMER = {
    "system": {
        "name": "transformer",
        **{f"{place}_attention": ATTENTION for place in ("encoder", "decoder", "cross")},
        "positions": "sinusoidal",
        **{"width": 128, "layers": 2, "hidden": 512},
        **{"norm": "pre", "dropout": 0.1, "share": "all"},
    },
    "schedule": {"name": "linear", "peak": 2e-3, "warmup": 400},
}

_SYSTEMS: dict[str, dict[str, Any]] = {
    "rnnsearch": RNNSEARCH,
    "luong": LUONG,
    "luong_local_p": LOCAL,
    "convs2s": CONVS2S,
    "transformer": TRANSFORMER,
}
