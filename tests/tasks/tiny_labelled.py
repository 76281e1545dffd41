"""Classification small enough for a test: single words are told by their last letter, pairs by
whether the second is in the first.
"""

import numpy as np

from attnlab import config as configs
from attnlab.data import labelled
from attnlab.data.columns import Batch
from attnlab.data.learned import Learned
from attnlab.data.vocabulary import Vocabulary
from attnlab.tasks.classification import Classification

SIZES = {"train": 64, "valid": 11, "test": 9}
SMALL = ["system.embedding=8", "system.width=8", "system.hidden=8"]
OF = {
    "bilstm_pooling": [],
    "attention_pooling": ["system.attention.score.hidden=8"],
    "self_attentive": ["system.attention.hops=2", "system.attention.hidden=8", "system.gated=4"],
}
SHARED = ["batch.size=16", "batch.buckets=4,8", "batch.max_length=8"]


def rows(split: str, texts: int) -> list[labelled.Labelled]:
    """Words of letters a to d, and what they are."""
    rng = np.random.default_rng(list(SIZES).index(split))
    actual: list[labelled.Labelled] = []
    for _ in range(SIZES[split]):
        word = "".join(rng.choice(list("abcd"), rng.integers(1, 7)))
        letter = str(rng.choice(list("abcd")))
        actual.append(
            ((word,), f"ends in {word[-1]}")
            if texts == 1
            else ((word, letter), "in" if letter in word else "out")
        )
    return actual


def load(system: str, texts: int = 1, *overrides: str) -> Classification:
    """The task of `configs/classification.py:<system>` (or, of pairs, `configs/inference.py`),
    shrunk, with overrides on top.
    """
    file = ("classification", "inference")[texts - 1]
    config = configs.load(f"configs/{file}.py:{system}", [*SMALL, *OF[system], *SHARED, *overrides])
    data = {split: rows(split, texts) for split in SIZES}
    vocabulary = Vocabulary.train(
        (text for each, _ in data["train"] for text in each), kind="char", min_frequency=1
    )
    classes = tuple(sorted({label for _, label in data["train"]}))
    learned = Learned.of_vocabulary(vocabulary, classes=classes, sentences=texts)
    examples = {split: labelled.encode(learned, x, split) for split, x in data.items()}
    return Classification(config, labelled.LabelledTexts(data, examples, learned))


def batch_of(task: Classification, count: int = 13) -> Batch:
    """A training batch of 16 rows, of which at most the first `count` are examples and the others
    padding.
    """
    batch = task.batches(1)(0)
    return {
        name: np.where((np.arange(16) < count).reshape(-1, *[1] * (ids.ndim - 1)), ids, 0)
        for name, ids in batch.items()
    }
