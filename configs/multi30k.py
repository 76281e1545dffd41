"""Multi30k German to English, the sizes that toolkits use for it: 6,000 shared byte-pair pieces,
batch 64, six epochs.

    python launch.py train --config=configs/multi30k.py:rnnsearch --config.data.directory=FOLDER --workdir=runs/multi30k-rnnsearch
    python launch.py train --config=configs/multi30k.py:transformer --config.data.directory=FOLDER --workdir=runs/multi30k-transformer

FOLDER holds train.de.gz, train.en.gz, val.de.gz ... test_2016_flickr.en.gz (Elliott et al. 2016;
29,000 pairs). Time on two CPU cores and the BLEU to expect: docs/results/translation.md.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """GRU 256 with additive attention ("rnnsearch"), or a 3+3 layer pre-LN Transformer of width 256
    ("transformer").
    """
    return merge(SHARED, choose(system, _SYSTEMS, "configs/multi30k.py"))


SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
SHARED = {
    "task": "translation",
    "data": {"name": "files", "source": "de", "target": "en", **SPLITS},
    "vocabulary": {"size": 6000, "lowercase": True},
    "batch": {"buckets": (12, 16, 20, 26, 34, 50), "max_length": 50},
    "optimizer": {"name": "adam", "b2": 0.98},
    "training": {
        "steps": 2748,  # six epochs of 458 batches
        "label_smoothing": 0.1,
        "evaluate_every": 458,
    },
    "checkpoint": {"every": 458},
    "decoding": {"length_penalty": 1.0, "max_ratio": 1.5, "max_extra": 5},
}
"""What does not depend on the system."""

RNNSEARCH = {
    "system": {
        "name": "rnnsearch",
        **dict.fromkeys(("embedding", "encoder", "decoder", "maxout"), 256),
        "dropout": 0.2,
        "attention": {"name": "single", "score": {"name": "additive", "hidden": 256}},
    },
    "schedule": {"name": "linear", "peak": 2e-3, "warmup": 200},
}
ATTENTION = {"name": "multihead", "heads": 4, "dropout": 0.1}
TRANSFORMER = {
    "system": {
        "name": "transformer",
        **{f"{place}_attention": ATTENTION for place in ("encoder", "decoder", "cross")},
        "positions": "sinusoidal",
        **{"width": 256, "layers": 3, "hidden": 1024},
        **{"norm": "pre", "dropout": 0.1, "share": "all"},
    },
    "schedule": {"name": "linear", "peak": 1e-3, "warmup": 500},
}

_SYSTEMS: dict[str, dict[str, Any]] = {"rnnsearch": RNNSEARCH, "transformer": TRANSFORMER}
