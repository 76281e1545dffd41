"""Text to text: T5 and BART from scratch, on the built-in dates unless told otherwise.

    python launch.py train --config=configs/text_to_text.py:t5 --workdir=runs/t5

Arguments: t5, t5_gated (T5 1.1), bart (small, for two CPU cores), t5_small, bart_base (the published
sizes). Your own pairs are lines of JSON (train.jsonl, valid.jsonl, test.jsonl, plain or .gz) or a table
(data=table), behind a prefix or not:

    --config.data=prefixed --config.data.of=json --config.data.of.directory=my/folder --config.data.of.source=article
    --config.data.of.target=summary --config.data.prefix='summarize: ' --config.vocabulary.kind=bpe
    --config.batch.max_length=512 --config.batch.buckets=128,256,512

Weights of others: `configs/pretrained.py:FOLDER`; to begin with those of a run of `configs/span_corruption.py`:
--config.pretrained.folder=RUN, with the settings of its vocabulary and system.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "t5") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, {"system": choose(system, SYSTEMS, "configs/text_to_text.py")()})


SHARED = {
    "task": "text_to_text",
    "data": "dates",
    "vocabulary": {"kind": "char", "min_frequency": 1},
    "batch": {"buckets": (16, 24, 32), "max_length": 32},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 1000},
}
"""What does not depend on the system."""


def _t5(
    width: int = 64, hidden: int = 256, layers: int = 2, heads: int = 4, gated: bool = False
) -> dict[str, Any]:
    """Raffel et al. 2020; 1.1 has gated layers and a head of its own."""
    looks = {"name": "multihead", "heads": heads, "score": "dot"}
    biases = {**looks, "positions": "t5"}
    return {
        "name": "transformer",
        "width": width,
        "hidden": hidden,
        "layers": layers,
        "norm": "pre",
        "normalisation": "rms_norm",
        "feed_forward": {"name": "geglu_tanh" if gated else "relu", "bias": False},
        "positions": "none",
        "share_positions": True,
        "scaled_embedding": False,
        "encoder_attention": biases,
        "decoder_attention": biases,
        "cross_attention": looks,
        "share": "input" if gated else "all",
        "scaled_output": not gated,
        "initial": "t5",
    }


def _bart(width: int = 64, layers: int = 2, heads: int = 4, length: int = 128) -> dict[str, Any]:
    """Lewis et al. 2020."""
    looks = {"name": "multihead", "heads": heads, "bias": True}
    return {
        "name": "transformer",
        "width": width,
        "hidden": 4 * width,
        "layers": layers,
        "norm": "post",
        "normalisation": {"name": "layer_norm", "epsilon": 1e-5},
        "feed_forward": "gelu",
        "positions": {"name": "learned", "length": length, "unused": 2},
        "own_positions": True,
        "scaled_embedding": False,
        "normalised_embedding": True,
        "encoder_attention": looks,
        "decoder_attention": looks,
        "cross_attention": looks,
        "output_bias": True,
        "initial": "bert",
    }


SYSTEMS = {
    "t5": _t5,
    "t5_gated": lambda: _t5(gated=True),
    "bart": _bart,
    "t5_small": lambda: _t5(512, 2048, 6, 8),
    "bart_base": lambda: _bart(768, 6, 12, 1024),
}
