"""The scripts that look inside trained runs: texts, sentences and batches that are known."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from attnlab.data.tagged import Sentence
from benchmarks import induction, treebank_heads

pytestmark = pytest.mark.quick


def test_in_texts_to_be_copied_every_word_tells_what_follows(tmp_path: Path) -> None:
    induction.write_texts(tmp_path, {"train": 200})
    texts = [line.split() for line in (tmp_path / "train.txt").read_text().splitlines()]
    assert len(texts) == 200 and {len(text) for text in texts} <= set(range(8, 49))
    for text in texts:
        pairs = set(itertools.pairwise(text))
        assert len({word for word, _ in pairs}) == len(pairs)
    assert sum(len({*text}) < len(text) for text in texts) > 190


def test_patterns_are_found_where_they_were_put() -> None:
    """Head 0 looks at the word before, head 1 at the rarest word, head 2 at the full stop."""
    words = "the", "dog", "sees", "the", "emu", "."
    before, rare, stop = np.eye(6, k=-1), np.eye(6)[[4] * 6], np.eye(6)[[5] * 6]
    sentences = [Sentence(words, ("x",) * 6)] * 4
    maps = [{"layer": np.stack([before, rare, stop])}] * 4
    frequencies = Counter({"the": 9, "dog": 3, "sees": 3, "emu": 1})
    previous, _, rarest, delimiter = treebank_heads.patterns(sentences, maps, frequencies)
    heads = [(record["pattern"], record["head"]) for record in (previous, rarest, delimiter)]
    assert heads == [("previous", 0), ("rare", 1), ("delimiter", 2)]
    assert rarest["share"] == delimiter["share"] == rarest["low"] == 1.0
    assert rarest["chance"] == pytest.approx(1 / 6) and previous["share"] == 1.0
