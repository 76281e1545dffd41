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
validation split, which also picks the checkpoint. Argument: rnnsearch or transformer. Time on two
CPU cores, BLEU and alignment error rate: docs/results.md.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """GRU 128/256 with additive attention ("rnnsearch"), or a 2+2 layer pre-LN Transformer of width
    128 ("transformer").
    """
    systems = {"rnnsearch": _rnnsearch, "transformer": _transformer}
    if system not in systems:
        raise UserError(f"configs/tatoeba.py has no system {system!r}; {nearest(system, systems)}")
    table = {
        "name": "table",
        "directory": "",
        "train": "train.tsv",
        "valid": "valid.tsv",
        "test": "valid.tsv",
    }
    shared = {
        "task": "translation",
        "seed": 0,
        "data": {"name": "joined", "of": table, "most": 4, "copies": 2},
        "vocabulary": {
            "kind": "bpe",
            "size": 6000,
            "min_frequency": 2,
            "lowercase": True,
            "shared": True,
        },
        "batch": {
            "size": 64,
            "unit": "sentences",
            "buckets": (10, 16, 24, 34, 48, 64),
            "max_length": 64,
        },
        "optimizer": {"name": "adam", "b2": 0.98},
        "training": {
            "steps": 6500,  # 3.4 times through the joined pairs
            "accumulate": 1,
            "clip": 1.0,
            "label_smoothing": 0.1,
            "per": "token",
            "ema": 0.0,
            "compute": "float32",
            "output_bias": "zeros",
            "log_every": 50,
            "evaluate_every": 1000,
        },
        "auxiliary": {"hops": 0.0, "doubly_stochastic": 0.0},
        "reinforce": {},
        "checkpoint": {"every": 500, "keep": 2, "by": "loss"},
        "parallel": {"backend": "auto", "devices": 0},
        "decoding": {"method": "beam", "beam": 5, "length_penalty": 1.0, "batch": 128},
    }
    return ConfigDict({**shared, **systems[system]()})


def _rnnsearch() -> dict[str, Any]:
    sizes = {
        "embedding": 128,
        "encoder": 128,
        "decoder": 256,
        "maxout": 128,
        "readout": "released",
        "dropout": 0.1,
    }
    return {
        "system": {
            "name": "rnnsearch",
            **sizes,
            "attention": {"name": "single", "score": {"name": "additive", "hidden": 128}},
        },
        "schedule": {"name": "linear", "peak": 2e-3, "warmup": 200},
    }


def _transformer() -> dict[str, Any]:
    attention = {"name": "multihead", "heads": 4, "dropout": 0.1}
    factories = {
        "encoder_attention": attention,
        "decoder_attention": attention,
        "cross_attention": attention,
    }
    sizes = {
        "width": 128,
        "layers": 2,
        "hidden": 512,
        "norm": "pre",
        "dropout": 0.1,
        "share": "all",
    }
    return {
        "system": {"name": "transformer", **factories, "positions": "sinusoidal", **sizes},
        "schedule": {"name": "linear", "peak": 2e-3, "warmup": 400},
    }
