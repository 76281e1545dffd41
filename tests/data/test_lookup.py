"""Pairs and a key: labels by an independent reading, splits apart, nothing to be read off the place
of the pair.
"""

from __future__ import annotations

from collections import Counter

import pytest

from attnlab.data.lookup import Lookup
from attnlab.errors import UserError


@pytest.mark.quick
def test_the_label_is_the_value_of_the_key_that_is_asked_for() -> None:
    rows = Lookup(examples=400).labelled("train")
    assert len(rows) == 400
    places: Counter[int] = Counter()
    for (text,), label in rows:
        *pairs, key = text.split()
        values = {pair[0]: pair[1:] for pair in pairs}
        assert len(pairs) == len(values) == 16 and len(key) == 1 and values[key] == label
        places[pairs.index(key + label)] += 1
    counts = Counter(label for _, label in rows)
    assert set(counts) == set("0123456789")
    assert min(counts.values()) > 20
    assert set(places) == set(range(16))


def test_equal_fields_give_equal_texts_and_splits_share_none() -> None:
    one = Lookup(examples=200, valid=50, test=50)
    splits = {split: one.labelled(split) for split in ("train", "valid", "test")}
    assert (
        splits["train"]
        == Lookup(examples=200).labelled("train")
        != Lookup(examples=200, seed=1).labelled("train")
    )
    texts = [text for rows in splits.values() for (text,), _ in rows]
    assert len(texts) == len(set(texts)) == 300


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pairs": 0}, "pairs=0 and config.data.keys=20: expected 1 <= pairs <= keys"),
        ({"pairs": 21}, "pairs=21 and config.data.keys=20"),
        ({"keys": 27}, "keys=27: expected 1 <= pairs <= keys <= 26"),
        ({"values": 1}, "values=1 must be in 2 ... 10"),
        ({"pairs": 1, "keys": 9}, "pairs=1: 90 texts are too few"),
        ({"pairs": 2, "keys": 2, "values": 2}, "pairs=2: 16 texts are too few"),
    ],
)
def test_impossible_fields_are_named(fields: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=words.replace(".", r"\.")):
        Lookup(**fields)
