"""Sequence-to-sequence learning, on the built-in dates unless told otherwise.

    python launch.py train --config=configs/translation.py:rnnsearch --workdir=runs/dates
    python launch.py train --config=configs/translation.py:transformer --workdir=runs/dates-transformer

Arguments: rnnsearch, transformer, rnn_encoder_decoder (small, for two CPU cores), rnnsearch_paper, transformer_base (the published sizes).
On two cores: rnnsearch 75 s, 0.998 of the test dates right as a whole, 1.0 GB; every other size: not measured here.
Your own text: --config.data=files --config.data.directory=my/folder --config.data.source=de --config.data.target=en
(train.de, train.en, valid.de ..., plain or .gz) with --config.vocabulary.kind=bpe.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest


def get_config(system: str = "rnnsearch") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    if system not in _SYSTEMS:
        raise UserError(f"configs/translation.py has no system {system!r}; {nearest(system, _SYSTEMS)}")
    return ConfigDict({**_shared(), **_SYSTEMS[system]()})


def _shared() -> dict[str, Any]:
    """What does not depend on the system."""
    return {
        "task": "translation",
        "seed": 0,
        "data": {"name": "dates"},
        "vocabulary": {"kind": "char", "size": 8000, "min_frequency": 1, "lowercase": False, "shared": True},
        "batch": {"size": 64, "unit": "sentences", "buckets": (16, 24, 32), "max_length": 32},
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
            "log_every": 50,
            "evaluate_every": 250,
        },
        "auxiliary": {"hops": 0.0, "doubly_stochastic": 0.0},
        "reinforce": {},
        "checkpoint": {"every": 250, "keep": 2},
        "parallel": {"backend": "mesh", "devices": 0},
        "decoding": {"method": "beam", "beam": 5, "length_penalty": 0.6},
    }


def _rnnsearch() -> dict[str, Any]:
    return {"system": {"name": "rnnsearch", "attention": {"name": "single", "score": {"name": "additive", "hidden": 128}}}}


def _rnn_encoder_decoder() -> dict[str, Any]:
    """Cho et al. 2014, without attention; about as many parameters as `rnnsearch`."""
    return {"system": {"name": "rnn_encoder_decoder"}}


def _transformer() -> dict[str, Any]:
    attention = {"name": "multihead", "heads": 4, "dropout": 0.0}
    system = {"name": "transformer", "encoder_attention": attention, "decoder_attention": attention, "cross_attention": attention}
    schedule = {"name": "inverse_sqrt", "peak": 2e-3, "warmup": 200}
    optimizer = {"name": "adam", "b2": 0.98, "eps": 1e-9}
    return {"system": {**system, "positions": "sinusoidal", "dropout": 0.1}, "schedule": schedule, "optimizer": optimizer}


def _rnnsearch_paper() -> dict[str, Any]:
    """Bahdanau et al. 2015: 30,000 words a side, sentences up to 50 words, Adadelta, gradient norm 1, no dropout."""
    sizes = {"embedding": 620, "encoder": 1000, "decoder": 1000, "maxout": 500}
    return {
        "system": {"name": "rnnsearch", **sizes, "attention": {"name": "single", "score": {"name": "additive", "hidden": 1000}}},
        "vocabulary": {"kind": "word", "size": 30000, "min_frequency": 1, "lowercase": False, "shared": False},
        "batch": {"size": 80, "unit": "sentences", "buckets": (20, 30, 40, 51), "max_length": 51},
        "optimizer": {"name": "adadelta", "rho": 0.95, "eps": 1e-6},
        "schedule": {"name": "constant", "peak": 1.0},
        "training": {**_shared()["training"], "steps": 300_000, "per": "sentence", "evaluate_every": 10_000, "log_every": 100},
        "checkpoint": {"every": 5000, "keep": 2},
    }


def _transformer_base() -> dict[str, Any]:
    """Vaswani et al. 2017, base: 37,000 shared pieces, 25,000 tokens a batch, 100,000 updates."""
    attention = {"name": "multihead", "heads": 8, "dropout": 0.0}
    factories = {"encoder_attention": attention, "decoder_attention": attention, "cross_attention": attention}
    sizes = {"width": 512, "layers": 6, "hidden": 2048, "norm": "post", "dropout": 0.1, "share": "all"}
    return {
        "system": {"name": "transformer", **factories, "positions": "sinusoidal", **sizes},
        "vocabulary": {"kind": "bpe", "size": 37000, "min_frequency": 2, "lowercase": False, "shared": True},
        "batch": {"size": 25_000, "unit": "tokens", "buckets": (16, 32, 64, 128, 256), "max_length": 256},
        "optimizer": {"name": "adam", "b2": 0.98, "eps": 1e-9},
        "schedule": {"name": "inverse_sqrt", "peak": (512 * 4000) ** -0.5, "warmup": 4000},
        "training": {**_shared()["training"], "steps": 100_000, "clip": 0.0, "label_smoothing": 0.1, "evaluate_every": 5000},
        "checkpoint": {"every": 5000, "keep": 5},
        "decoding": {"method": "beam", "beam": 4, "length_penalty": 0.6, "max_ratio": 1.0, "max_extra": 50},
    }


_SYSTEMS = {
    "rnnsearch": _rnnsearch,
    "transformer": _transformer,
    "rnn_encoder_decoder": _rnn_encoder_decoder,
    "rnnsearch_paper": _rnnsearch_paper,
    "transformer_base": _transformer_base,
}
