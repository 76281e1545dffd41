"""Pronunciation: letters to phonemes, on the built-in invented orthography unless told otherwise.

    python launch.py train --config=configs/g2p.py:rnnsearch --workdir=runs/g2p
    python launch.py train --config=configs/g2p.py:convs2s --workdir=runs/g2p-convs2s

Arguments: rnnsearch, rnn_encoder_decoder, convs2s, transformer (small, for two CPU cores). On two
cores: rnnsearch says 4.8, 6.8 and 8.9 % of the test words wrong (seeds 0, 1, 2), in about 50 s a
run; the others: not measured here. Your own dictionary, lines of WORD TAB PH PH PH in train.tsv,
valid.tsv and test.tsv, plain or .gz (a word may have several lines; all of them should be in one
split): --config.data=table --config.data.directory=my/folder
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/g2p.py"))


SHARED = {
    "task": "pronunciation",
    "data": "spelling",
    "vocabulary": {"kind": "char", "target_kind": "spaced", "min_frequency": 1, "shared": False},
    "batch": {"buckets": (12, 16, 24), "max_length": 32},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 1000, "output_bias": "unigram"},
}
"""What does not depend on the system."""

RNNSEARCH = {
    "system": {
        "name": "rnnsearch",
        "attention": {"name": "single", "score": {"name": "additive", "hidden": 128}},
    }
}
CONVS2S = {
    "system": {
        "name": "convs2s",
        "attention": {"name": "single", "score": "dot"},
        "positions": {"name": "learned", "length": 256, "stddev": 0.1},
    }
}
ATTENTION = {"name": "multihead", "heads": 4, "dropout": 0.0}
TRANSFORMER = {
    "system": {
        "name": "transformer",
        **{f"{place}_attention": ATTENTION for place in ("encoder", "decoder", "cross")},
        "positions": "sinusoidal",
        "dropout": 0.1,
        "share": "output",
    },
    "schedule": {"name": "inverse_sqrt", "peak": 2e-3, "warmup": 200},
    "training": {"output_bias": "zeros"},  # its scores have no bias
}

_SYSTEMS: dict[str, dict[str, Any]] = {
    "rnnsearch": RNNSEARCH,
    "rnn_encoder_decoder": {"system": "rnn_encoder_decoder"},
    "convs2s": CONVS2S,
    "transformer": TRANSFORMER,
}
