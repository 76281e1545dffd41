"""A small text in many lines, and its shards."""

import random
from pathlib import Path

from attnlab.data import documents
from attnlab.data.documents import Corpus
from attnlab.data.preparing import Asked, prepare
from attnlab.data.shard_folder import Index

LEARNED = {"kind": "bpe", "size": 90, "min_frequency": 2, "lowercase": False}
LENGTH = 700  # ids of a shard
assert documents.CHUNK > 1000


def lines(count: int = 300, seed: int = 0) -> list[str]:
    """Lines of none to twelve words; one of them is longer than a shard."""
    rng = random.Random(seed)
    words = ["the", "dog", "saw", "a", "Hund", "über", "street", "lamp,", "it", "runs."]
    actual = [" ".join(rng.choices(words, k=rng.randrange(13))) for _ in range(count)]
    actual[count // 2] = " ".join(rng.choices(words, k=900))
    return actual


def written(path: Path, count: int = 300, seed: int = 0) -> Corpus:
    """The lines in a file."""
    path.write_text("\n".join(lines(count, seed)) + "\n")
    return Corpus((path,))


def shards(folder: Path, corpus: Corpus, processes: int = 1, **how: object) -> Index:
    """The folder of shards of a corpus."""
    asked = Asked(corpus, **{"vocabulary": dict(LEARNED), "length": LENGTH, **how})  # type: ignore[arg-type]
    return prepare(folder, asked, processes, lambda told: None, lambda line: None)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
