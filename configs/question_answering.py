"""Extractive question answering, on made-up passages unless told otherwise.

    python launch.py train --config=configs/question_answering.py:transformer --workdir=runs/questions

Arguments: transformer, bilstm. Questions in the form of SQuAD (plain, .gz or .xz), those without an
answer left out, or counted as in SQuAD 2 with the second line; the third cuts long passages into
windows, whose best answer counts:

    --config.data=squad --config.data.directory=my/folder --config.batch.max_length=384 --config.batch.buckets=128,256,384
    --config.passages.unanswerable=true --config.passages.threshold=0
    --config.passages.stride=128

Made-up passages have questions without an answer with --config.data.absent=0.3.

In a passage of four clauses every clause could have the answer. transformer: for some hundred
updates it knows only where answers stand (loss ln 4 = 1.386), then within a hundred which is asked
for; all of 1,000 test questions right. With learned positions and a rate that falls it was still
there after 1,000 updates. bilstm: not measured. Longer rows than batch.max_length are refused if
passages are not cut (`batch.longer`). Answers begin and end with pieces of the vocabulary; of text
without blanks, such as Chinese, words are whole clauses, and answers that cannot be reached are
refused: take vocabulary.kind=char, bpe or a tokenizer. `generate` reads a question and a passage
with a tab between them.
"""

from typing import Any

from ml_collections import ConfigDict

from attnlab.config import choose, merge


def get_config(system: str = "transformer") -> ConfigDict:
    """The configuration for one system; see the top of this file for the names."""
    return merge(SHARED, choose(system, _SYSTEMS, "configs/question_answering.py")())


SHARED = {
    "task": "question_answering",
    "data": "deeds",
    "vocabulary": {"kind": "word", "size": 30_000, "min_frequency": 1, "lowercase": True},
    "batch": {"buckets": (48,), "max_length": 48, "longer": "refuse"},
    "passages": {"answers": "pieces", "unreachable": 0.05},
    "schedule": {"name": "constant", "peak": 1e-3, "warmup": 100},
    "training": {"steps": 1500},
    "checkpoint": {"by": "accuracy"},
}
"""What does not depend on the system."""


def _transformer() -> dict[str, Any]:
    heads = {"name": "multihead", "heads": 4}
    sizes = {"width": 64, "hidden": 256, "layers": 2, "types": 2}
    near = {"positions": {"name": "shaw", "clip": 8}}
    return {"system": {"name": "encoder", **sizes, "attention": heads | near, "positions": "none"}}


def _bilstm() -> dict[str, Any]:
    return {"system": "bilstm_tagger"}


_SYSTEMS = {"transformer": _transformer, "bilstm": _bilstm}
