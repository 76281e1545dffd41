"""Diagnostic tasks: a decoder around any mixer, and a text that asks for one ability.

    python launch.py train --config=configs/diagnostics.py:multihead --workdir=runs/recall

The argument is the mixer of every layer: multihead, recurrent, convolution, or another name of
`list mixers` that a decoder takes. The text is multi-query associative recall (MQAR) with 64 words and 4
pairs unless told otherwise:

    --config.data=mqar --config.data.length=256 --config.data.pairs=64 --config.data.symbols=1024
    --config.data=associative_recall                    one question at the end
    --config.data=needle --config.data.hay=pairs        a pair that matters among pairs that do not
    --config.data=selective_copying                     words among blanks
    --config.data=induction --config.data.tested=256    what followed the last time; longer texts in the test split
    --config.data=state_tracking --config.data.of=alternating --config.data.tested=128     products of permutations
    --config.data=list_ops                              the value of nested lists
    --config.data=in_a_row --config.data.of.order=reversed --config.data.of.tested=40    copied, reversed or sorted words

`batch.max_length` must hold a text and the token that begins it; longer ones are left out of
training. The accuracies of guesses stand beside every score.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import merge


def get_config(mixer: str = "multihead") -> ConfigDict:
    """The configuration for one mixer; see the top of this file."""
    return merge(SHARED, {"system": {"attention": mixer, **_SYSTEMS.get(mixer, {})}})


_SYSTEMS: dict[str, dict[str, Any]] = {
    "multihead": {"positions": {"name": "learned", "length": 1024}},
    "recurrent": {},
    "convolution": {},
}
"""What differs with a mixer; others know the order of what they read without positions too."""

SHARED = {
    "task": "diagnostics",
    "data": {"name": "mqar", "examples": 20_000},
    "vocabulary": {"kind": "spaced", "size": 20_000, "min_frequency": 1},
    "batch": {"buckets": (33, 65, 129, 257, 513), "max_length": 513},
    "optimizer": {"name": "adamw", "weight_decay": 0.1},
    "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 100},
    "training": {"steps": 2000, "output_bias": "zeros", "clip": 1.0, "evaluate_every": 500},
    "checkpoint": {"by": "accuracy"},
    "system": {"name": "decoder", "positions": "none", "width": 64, "hidden": 128, "dropout": 0.0},
}
"""What does not depend on the mixer."""
