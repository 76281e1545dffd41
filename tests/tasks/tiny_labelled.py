"""Classification small enough for a test: single words are told by their last letter, pairs by
whether the second is in the first.
"""

import dataclasses

import numpy as np

from attnlab.data.columns import Batch
from attnlab.data.labelled import Labelled
from attnlab.tasks.classification import Classification
from tests.tasks.tiny import loader

SIZES = {"train": 64, "valid": 11, "test": 9}
SMALL = ["system.embedding=8", "system.width=8", "system.hidden=8"]
OF = {
    "bilstm_pooling": [],
    "attention_pooling": ["system.attention.score.hidden=8"],
    "self_attentive": ["system.attention.hops=2", "system.attention.hidden=8", "system.gated=4"],
}
SHARED = [
    *(f"data={__name__}:Words", "vocabulary.kind=char", "vocabulary.min_frequency=1"),
    *("batch.size=16", "batch.buckets=4,8", "batch.max_length=8"),
]


@dataclasses.dataclass(frozen=True)
class Words:
    """Words of letters a to d, and what they are."""

    sentences: int = 1

    def labelled(self, split: str) -> list[Labelled]:
        rng = np.random.default_rng(list(SIZES).index(split))
        actual: list[Labelled] = []
        for _ in range(SIZES[split]):
            word = "".join(rng.choice(list("abcd"), rng.integers(1, 7)))
            letter = str(rng.choice(list("abcd")))
            pair = (word, letter), "in" if letter in word else "out"
            actual.append(pair if self.sentences == 2 else ((word,), f"ends in {word[-1]}"))
        return actual


def load(system: str, texts: int = 1, *overrides: str) -> Classification:
    """The task of `configs/classification.py:<system>` (or, of pairs, `configs/inference.py`),
    shrunk, with overrides on top.
    """
    file = ("classification", "inference")[texts - 1]
    small = [*SMALL, *OF[system], *SHARED, f"data.sentences={texts}"]
    return loader(f"{file}.py:{system}", small, tuple(SIZES))(*overrides)  # type: ignore[no-any-return]


def batch_of(task: Classification, count: int = 13) -> Batch:
    """A training batch of 16 rows, of which at most the first `count` are examples and the others
    padding.
    """
    batch = task.batches(1)(0)
    return {
        name: np.where((np.arange(16) < count).reshape(-1, *[1] * (ids.ndim - 1)), ids, 0)
        for name, ids in batch.items()
    }
