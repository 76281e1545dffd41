"""Multi30k German to English, the sizes that toolkits use for it: 6,000 shared byte-pair pieces,
batch 64, six epochs.

    python launch.py train --config=configs/multi30k.py:rnnsearch --config.data.directory=FOLDER --workdir=runs/multi30k-rnnsearch
    python launch.py train --config=configs/multi30k.py:transformer --config.data.directory=FOLDER --workdir=runs/multi30k-transformer

FOLDER holds train.de.gz, train.en.gz, val.de.gz ... test_2016_flickr.en.gz (Elliott et al. 2016;
29,000 pairs). Time on two CPU cores and the BLEU to expect: docs/results.md.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """GRU 256 with additive attention ("rnnsearch"), or a 3+3 layer pre-LN Transformer of width 256
    ("transformer").
    """
    systems = {"rnnsearch": _rnnsearch, "transformer": _transformer}
    if system not in systems:
        raise UserError(f"configs/multi30k.py has no system {system!r}; {nearest(system, systems)}")
    splits = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    steps = 2748  # six epochs of 458 batches
    shared = {
        "task": "translation",
        "seed": 0,
        "data": {"name": "files", "directory": "", "source": "de", "target": "en", **splits},
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
            "buckets": (12, 16, 20, 26, 34, 50),
            "max_length": 50,
        },
        "optimizer": {"name": "adam", "b2": 0.98},
        "training": {
            "steps": steps,
            "accumulate": 1,
            "clip": 1.0,
            "label_smoothing": 0.1,
            "per": "token",
            "ema": 0.0,
            "compute": "float32",
            "output_bias": "zeros",
            "log_every": 50,
            "evaluate_every": 458,
        },
        "auxiliary": {"hops": 0.0, "doubly_stochastic": 0.0},
        "reinforce": {},
        "checkpoint": {"every": 458, "keep": 2, "by": "loss"},
        "parallel": {"backend": "auto", "devices": 0},
        "decoding": {
            "method": "beam",
            "beam": 5,
            "length_penalty": 1.0,
            "max_ratio": 1.5,
            "max_extra": 5,
        },
    }
    return ConfigDict({**shared, **systems[system]()})


def _rnnsearch() -> dict[str, Any]:
    sizes = {"embedding": 256, "encoder": 256, "decoder": 256, "maxout": 256, "dropout": 0.2}
    return {
        "system": {
            "name": "rnnsearch",
            **sizes,
            "attention": {"name": "single", "score": {"name": "additive", "hidden": 256}},
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
        "width": 256,
        "layers": 3,
        "hidden": 1024,
        "norm": "pre",
        "dropout": 0.1,
        "share": "all",
    }
    return {
        "system": {"name": "transformer", **factories, "positions": "sinusoidal", **sizes},
        "schedule": {"name": "linear", "peak": 1e-3, "warmup": 500},
    }
