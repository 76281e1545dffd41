"""Natural language inference: does the second text follow from the first, contradict it, or
neither? Built-in pairs unless told otherwise.

    python launch.py train --config=configs/inference.py:self_attentive --workdir=runs/entailment

Arguments: bilstm_pooling, attention_pooling, self_attentive, transformer, lstmn_pair (small, for two
CPU cores), self_attentive_paper, lstmn_pair_paper (published sizes). On two cores that had other work too:
self_attentive 65 s, 0.924 of the test labels right, where chance is 0.333; lstmn_pair about 3
minutes, 0.78 (it was still learning). Every other size: not measured here. Your own pairs, a table
with tabs between its columns (train.tsv, valid.tsv, test.tsv, plain or .gz), labels as they stand
there:

    --config.data=table --config.data.directory=my/folder --config.data.source=1 --config.data.target=2 --config.data.label=3

`generate` reads both texts with a tab between them. A prepared TensorFlow dataset:
--config.data=tfds --config.data.dataset=snli
--config.data.source=premise --config.data.target=hypothesis --config.data.label=label.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "self_attentive") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/inference.py")())


SHARED = {
    "task": "classification",
    "data": {"name": "entailment", "examples": 40_000},
    "vocabulary": {"kind": "word", "size": 50_000, "min_frequency": 1, "lowercase": True},
    "batch": {"buckets": (12, 16, 24, 32, 64), "max_length": 64, "longer": "cut"},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 50},
    "training": {"steps": 3000, "evaluate_every": 500},
    "checkpoint": {"every": 500, "by": "accuracy"},
}
"""What does not depend on the system."""
PAPER = {
    "training": {"log_every": 100, "evaluate_every": 10_000},
    "checkpoint": {"every": 10_000},
}
SMALL = {"embedding": 32, "width": 64, "hidden": 64}


def _additive(hidden: int) -> dict[str, Any]:
    """Attention of one head by the score of Bahdanau et al. 2015."""
    return {"name": "single", "score": {"name": "additive", "hidden": hidden}}


def _bilstm_pooling() -> dict[str, Any]:
    return {"system": {"name": "bilstm_pooling", **SMALL, "pooling": "max"}}


def _attention_pooling() -> dict[str, Any]:
    return {"system": {"name": "attention_pooling", **SMALL, "attention": _additive(32)}}


def _transformer() -> dict[str, Any]:
    """An encoder without pretraining; small steps at first, for it diverges otherwise."""
    system = {
        "name": "encoder_classifier",
        "attention": {"name": "multihead", "heads": 4},
        "positions": "learned",
        "types": 2,
        "width": 64,
        "hidden": 256,
    }
    return {"system": system, "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 100}}


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
        **merge(PAPER, {"training": {"steps": 100_000, "clip": 0.5}}),
        "system": {"name": "self_attentive", **sizes, "attention": hops},
        "batch": {"size": 50, "buckets": (12, 16, 24, 32, 48, 83), "max_length": 83},
        "optimizer": "adagrad",
        "schedule": {"name": "constant", "peak": 0.01},
        "auxiliary": {"hops": 0.3},
    }


def _lstmn_pair() -> dict[str, Any]:
    """Deep fusion; `system.fusion=shallow` for the other."""
    return {
        "system": {
            "name": "lstmn_pair",
            "embedding": 64,
            "width": 64,
            "attention": _additive(64),
            "inter_attention": _additive(64),
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
    sizes = {"embedding": 300, "width": 450, "uniform": 0.05, "dropout": 0.5}
    return {
        **merge(PAPER, {"training": {"steps": 412_000, "clip": 5.0}}),
        "system": {
            "name": "lstmn_pair",
            **sizes,
            "attention": _additive(450),
            "inter_attention": _additive(450),
        },
        "batch": {"size": 40, "buckets": (12, 16, 24, 32, 61), "max_length": 61},
        "schedule": {"peak": 1e-3, "warmup": 0},
    }


_SYSTEMS = {
    "bilstm_pooling": _bilstm_pooling,
    "attention_pooling": _attention_pooling,
    "self_attentive": _self_attentive,
    "transformer": _transformer,
    "lstmn_pair": _lstmn_pair,
    "self_attentive_paper": _self_attentive_paper,
    "lstmn_pair_paper": _lstmn_pair_paper,
}
