"""Pronunciation: letters to phonemes, on the built-in invented orthography unless told otherwise.

    python launch.py train --config=configs/g2p.py:rnnsearch --workdir=runs/g2p
    python launch.py train --config=configs/g2p.py:convs2s --workdir=runs/g2p-convs2s

Arguments: rnnsearch, rnn_encoder_decoder, convs2s, transformer (small, for two CPU cores). On two
cores: rnnsearch says 4.8, 6.8 and 8.9 % of the test words wrong (seeds 0, 1, 2), in about 50 s a
run; the others: not measured here. Your own dictionary, lines of WORD TAB PH PH PH in train.tsv,
valid.tsv and test.tsv, plain or .gz (a word may have several lines; all of them should be in one
split): --config.data=table --config.data.directory=my/folder
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    if system not in _SYSTEMS:
        raise UserError(f"configs/g2p.py has no system {system!r}; {nearest(system, _SYSTEMS)}")
    return ConfigDict({**_shared(), **_SYSTEMS[system]()})


def _shared() -> dict[str, Any]:
    """What does not depend on the system."""
    return {
        "task": "pronunciation",
        "seed": 0,
        "data": {"name": "spelling"},
        "vocabulary": {
            "kind": "char",
            "target_kind": "spaced",
            "size": 8000,
            "min_frequency": 1,
            "lowercase": False,
            "shared": False,
        },
        "batch": {"size": 64, "unit": "sentences", "buckets": (12, 16, 24), "max_length": 32},
        "optimizer": {"name": "adam"},
        "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
        "training": {
            "steps": 1000,
            "accumulate": 1,
            "clip": 1.0,
            "label_smoothing": 0.0,
            "per": "token",
            "ema": 0.0,
            "compute": "float32",
            "output_bias": "unigram",
            "log_every": 50,
            "evaluate_every": 250,
        },
        "auxiliary": {"hops": 0.0, "doubly_stochastic": 0.0},
        "reinforce": {},
        "checkpoint": {"every": 250, "keep": 2, "by": "loss"},
        "parallel": {"backend": "auto", "devices": 0},
        "decoding": {"method": "beam", "beam": 5, "length_penalty": 0.6},
    }


def _rnnsearch() -> dict[str, Any]:
    return {
        "system": {
            "name": "rnnsearch",
            "attention": {"name": "single", "score": {"name": "additive", "hidden": 128}},
        }
    }


def _rnn_encoder_decoder() -> dict[str, Any]:
    return {"system": {"name": "rnn_encoder_decoder"}}


def _convs2s() -> dict[str, Any]:
    positions = {"name": "learned", "length": 256, "stddev": 0.1}
    return {
        "system": {
            "name": "convs2s",
            "attention": {"name": "single", "score": "dot"},
            "positions": positions,
        }
    }


def _transformer() -> dict[str, Any]:
    attention = {"name": "multihead", "heads": 4, "dropout": 0.0}
    factories = {
        "encoder_attention": attention,
        "decoder_attention": attention,
        "cross_attention": attention,
    }
    system = {
        "name": "transformer",
        **factories,
        "positions": "sinusoidal",
        "dropout": 0.1,
        "share": "output",
    }
    training = {**_shared()["training"], "output_bias": "zeros"}  # its scores have no bias
    return {
        "system": system,
        "schedule": {"name": "inverse_sqrt", "peak": 2e-3, "warmup": 200},
        "training": training,
    }


_SYSTEMS = {
    "rnnsearch": _rnnsearch,
    "rnn_encoder_decoder": _rnn_encoder_decoder,
    "convs2s": _convs2s,
    "transformer": _transformer,
}
