"""Natural language inference: does the second text follow from the first, contradict it, or
neither? Built-in pairs unless told otherwise.

    python launch.py train --config=configs/inference.py:self_attentive --workdir=runs/entailment

Arguments: bilstm_pooling, attention_pooling, self_attentive, lstmn_pair (small, for two CPU cores),
self_attentive_paper, lstmn_pair_paper (published sizes). On two cores that had other work too:
self_attentive 65 s, 0.924 of the test labels right, where chance is 0.333; lstmn_pair about 3
minutes, 0.78 (it was still learning). Every other size: not measured here. Your own pairs, a table
with tabs between its columns (train.tsv, valid.tsv, test.tsv, plain or .gz), labels as they stand
there:

    --config.data=table --config.data.directory=my/folder --config.data.source=1 --config.data.target=2 --config.data.label=3

`generate` reads both texts with a tab between them. A prepared TensorFlow dataset:
--config.data=tfds --config.data.dataset=snli
--config.data.source=premise --config.data.target=hypothesis --config.data.label=label.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest


def get_config(system: str = "self_attentive") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    if system not in _SYSTEMS:
        raise UserError(
            f"configs/inference.py has no system {system!r}; {nearest(system, _SYSTEMS)}"
        )
    return ConfigDict({**_shared(), **_SYSTEMS[system]()})


def _shared() -> dict[str, Any]:
    """What does not depend on the system."""
    return {
        "task": "classification",
        "seed": 0,
        "data": {"name": "entailment", "examples": 40_000},
        "vocabulary": {"kind": "word", "size": 50_000, "min_frequency": 1, "lowercase": True},
        "batch": {
            "size": 64,
            "unit": "sentences",
            "buckets": (12, 16, 24, 32, 64),
            "max_length": 64,
        },
        "optimizer": {"name": "adam"},
        "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 50},
        "training": {
            "steps": 3000,
            "accumulate": 1,
            "clip": 1.0,
            "label_smoothing": 0.0,
            "ema": 0.0,
            "compute": "float32",
            "log_every": 50,
            "evaluate_every": 500,
        },
        "auxiliary": {"hops": 0.0},
        "reinforce": {},
        "checkpoint": {"every": 500, "keep": 2, "by": "accuracy"},
        "parallel": {"backend": "auto", "devices": 0},
    }


SMALL = {"embedding": 32, "width": 64, "hidden": 64}


def _bilstm_pooling() -> dict[str, Any]:
    return {"system": {"name": "bilstm_pooling", **SMALL, "pooling": "max"}}


def _attention_pooling() -> dict[str, Any]:
    return {
        "system": {
            "name": "attention_pooling",
            **SMALL,
            "attention": {"name": "single", "score": {"name": "additive", "hidden": 32}},
        }
    }


def _self_attentive() -> dict[str, Any]:
    hops = {"name": "hops", "hops": 4, "hidden": 32, "output": "side_by_side"}
    return {
        "system": {"name": "self_attentive", **SMALL, "gated": 32, "attention": hops},
        "auxiliary": {"hops": 0.01},
    }


def _self_attentive_paper() -> dict[str, Any]:
    """Lin et al. 2017 on SNLI: 30 hops of 300 units each way.

    The paper clips every entry of the gradient to 0.5 and decays all weights; here the whole
    gradient is scaled down to a norm of 0.5. Penalty, batch, hidden layer, gated units and Adagrad
    at 0.01 are as others report them, not checked. Embeddings are learned from the start, not taken
    from elsewhere.
    """
    hops = {"name": "hops", "hops": 30, "hidden": 350, "output": "side_by_side"}
    sizes = {"embedding": 300, "width": 300, "gated": 300, "hidden": 4000, "dropout": 0.5}
    return {
        "system": {"name": "self_attentive", **sizes, "attention": hops},
        "batch": {
            "size": 50,
            "unit": "sentences",
            "buckets": (12, 16, 24, 32, 48, 83),
            "max_length": 83,
        },
        "optimizer": {"name": "adagrad"},
        "schedule": {"name": "constant", "peak": 0.01},
        "training": {
            **_shared()["training"],
            "steps": 100_000,
            "clip": 0.5,
            "log_every": 100,
            "evaluate_every": 10_000,
        },
        "auxiliary": {"hops": 0.3},
        "checkpoint": {"every": 10_000, "keep": 2, "by": "accuracy"},
    }


def _lstmn_pair() -> dict[str, Any]:
    """Deep fusion; `system.fusion=shallow` for the other."""
    additive = {"name": "single", "score": {"name": "additive", "hidden": 64}}
    return {
        "system": {
            "name": "lstmn_pair",
            "embedding": 64,
            "width": 64,
            "attention": additive,
            "inter_attention": additive,
        }
    }


def _lstmn_pair_paper() -> dict[str, Any]:
    """Cheng et al. 2016 on SNLI, sizes as in their code: 450 units, deep fusion, 30 epochs of
    batches of 40, no sentence above 60 words.

    There embeddings are taken from elsewhere, and the rate is multiplied by 0.75 when validation
    stalls; here they are learned, and it falls along a cosine. There h~ is not part of the question
    in the first text; here it is in both, as in the paper. There dropout acts only before the last
    layer; here on the embeddings, too.
    """
    additive = {"name": "single", "score": {"name": "additive", "hidden": 450}}
    sizes = {"embedding": 300, "width": 450, "uniform": 0.05, "dropout": 0.5}
    return {
        "system": {
            "name": "lstmn_pair",
            **sizes,
            "attention": additive,
            "inter_attention": additive,
        },
        "batch": {
            "size": 40,
            "unit": "sentences",
            "buckets": (12, 16, 24, 32, 61),
            "max_length": 61,
        },
        "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 0},
        "training": {
            **_shared()["training"],
            "steps": 412_000,
            "clip": 5.0,
            "log_every": 100,
            "evaluate_every": 10_000,
        },
        "checkpoint": {"every": 10_000, "keep": 2, "by": "accuracy"},
    }


_SYSTEMS = {
    "bilstm_pooling": _bilstm_pooling,
    "attention_pooling": _attention_pooling,
    "self_attentive": _self_attentive,
    "lstmn_pair": _lstmn_pair,
    "self_attentive_paper": _self_attentive_paper,
    "lstmn_pair_paper": _lstmn_pair_paper,
}
