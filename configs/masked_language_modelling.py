"""Masked language modelling, on sentences of a made-up language unless told otherwise.

    python launch.py train --config=configs/masked_language_modelling.py:transformer --workdir=runs/masked

Arguments: transformer (small, for two CPU cores), bert (the same size with BERT's choices),
bert_paper (the published base size). In the built-in sentences endings and the verb tell the number of
what is hidden. Your own text, a line a text (train.txt, valid.txt, test.txt, plain or .gz):

    --config.data=text --config.data.directory=my/folder --config.vocabulary.kind=bpe --config.batch.max_length=128

A corpus that is too large for memory, prepared by `launch.py prepare --reserved=1 --to=FOLDER/train
--from=FILES`, with the vocabulary of its shards, in rows without padding:

    --config.data=shards --config.data.directory=FOLDER --config.batch.texts=packed --config.batch.max_length=128

Next sentence prediction beside it, from texts with a sentence a line and a blank line after each document:

    configs/masked_language_modelling.py:bert --config.system.next_sentence=true --config.batch.texts=pairs --config.batch.max_length=128

`generate` fills in each [MASK] of the lines of its input.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "transformer") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/masked_language_modelling.py")())


SHARED = {
    "task": "masked_language_modelling",
    "data": "one_side",
    "vocabulary": {"kind": "word", "size": 10_000, "min_frequency": 1, "reserved": 1},
    "batch": {"max_length": 32, "longer": "windows"},
    "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 100},
    "training": {"steps": 2500, "evaluate_every": 500, "output_bias": "unigram"},
    "checkpoint": {"every": 500},
}
"""What does not depend on the system."""
NORM = {"name": "layer_norm", "epsilon": 1e-12}
SMALL = {"width": 64, "hidden": 256, "layers": 2}


def _transformer() -> dict[str, Any]:
    heads = {"name": "multihead", "heads": 4}
    system = {"name": "encoder", **SMALL, "head": "tied", "attention": heads}
    return {"system": {**system, "positions": "learned"}}


def _bert() -> dict[str, Any]:
    heads = {"name": "multihead", "heads": 4, "bias": True}
    system = {"name": "bert", **SMALL, "normalisation": NORM, "attention": heads}
    return {"system": {**system, "positions": "learned"}}


def _bert_paper() -> dict[str, Any]:
    """Devlin et al. 2019, the base size: 12 layers, batches of 256, 1,000,000 steps; nine tenths of
    them with 128 tokens, the rest with 512, here a second run with batch.max_length=512 that begins
    with the first. Texts of whole documents, so without next sentence prediction; see above for it.
    """
    heads = {"name": "multihead", "heads": 12, "bias": True, "dropout": 0.1}
    return {
        "system": {
            "name": "bert",
            **{"width": 768, "hidden": 3072, "layers": 12, "normalisation": NORM},
            "attention": heads,
            "positions": "learned",
        },
        "data": "text",
        "vocabulary": {"kind": "bpe", "size": 30_000, "lowercase": True},
        "batch": {"size": 256, "max_length": 128, "texts": "packed"},
        "masking": {"most": 20},
        "optimizer": {"name": "adamw", "b2": 0.999, "eps": 1e-6, "weight_decay": 0.01},
        "schedule": {"name": "linear", "peak": 1e-4, "warmup": 10_000},
        "training": {"steps": 1_000_000, "evaluate_every": 10_000, "output_bias": "zeros"},
        "checkpoint": {"every": 10_000},
    }


_SYSTEMS = {"transformer": _transformer, "bert": _bert, "bert_paper": _bert_paper}
