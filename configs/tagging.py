"""Tagging, on sentences of a made-up language unless told otherwise.

    python launch.py train --config=configs/tagging.py:transformer --workdir=runs/tagging

Arguments: bilstm, transformer, shaw (relative positions), syntax (relative positions in the sentence
and in its dependency tree). In the built-in sentences kind and number of every word are asked for;
"the", adjectives and verbs behind "will" do not show their number. A treebank of Universal
Dependencies (CoNLL-U, plain, .gz or .xz), or columns as in the shared tasks of CoNLL, where spans
(IOB1, IOB2, IOBES and others, see `attnlab.tasks.spans`) are scored by F1:

    --config.data=conllu --config.data.directory=my/treebank        (train.conllu, dev.conllu, test.conllu)
    --config.data=columns --config.data.directory=my/folder --config.data.tag=4

Sentences of more than batch.max_length tokens are refused; batch.longer=cut cuts them to whole words,
leave_out leaves them out. `generate` tags the lines of its input, words with blanks between them.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "transformer") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/tagging.py")())


SHARED = {
    "task": "tagging",
    "data": {"name": "agreement", "examples": 5000},
    "vocabulary": {"kind": "spaced", "size": 20_000, "min_frequency": 1},
    "batch": {"buckets": (16, 32), "max_length": 32, "longer": "refuse"},
    "schedule": {"name": "cosine", "peak": 3e-3, "warmup": 100},
    "training": {"steps": 1000, "output_bias": "unigram"},
}
"""What does not depend on the system."""


def _bilstm() -> dict[str, Any]:
    """Huang et al. 2015."""
    return {"system": {"name": "bilstm_tagger", "dropout": 0.1}}


def _encoder(**attention: Any) -> dict[str, Any]:
    return {
        "system": {
            "name": "encoder",
            "attention": {"name": "multihead", "heads": 4, **attention},
            "positions": "none" if attention else "sinusoidal",
            "width": 64,
            "hidden": 256,
        },
        "schedule": {"peak": 1e-3},
    }


def _shaw() -> dict[str, Any]:
    """Shaw et al. 2018."""
    return _encoder(positions={"name": "shaw", "clip": 8})


def _syntax() -> dict[str, Any]:
    """Wang et al. 2019; needs a source with trees."""
    return _encoder(positions={"name": "syntax_relative", "clip": 8})


_SYSTEMS = {"bilstm": _bilstm, "transformer": _encoder, "shaw": _shaw, "syntax": _syntax}
