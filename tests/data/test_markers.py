"""Hidden numbers: labels by an independent count, splits apart, nothing to be read off place or
length.
"""

from __future__ import annotations

from collections import Counter

import pytest

from attnlab.data.markers import Markers
from attnlab.errors import UserError


@pytest.mark.quick
def test_the_label_is_the_sum_of_the_two_numbers() -> None:
    rows = Markers(examples=300).labelled("train")
    assert len(rows) == 300
    for (text,), label in rows:
        words = text.split()
        found = [int(word) for word in words if word.isdigit()]
        assert len(found) == 2 and sum(found) % 5 == int(label) and 30 <= len(words) <= 60
    counts = Counter(label for _, label in rows)
    assert set(counts) == set("01234") and min(counts.values()) > 35


def test_equal_fields_give_equal_texts_and_splits_share_none() -> None:
    one = Markers(examples=200, valid=50, test=50)
    splits = {split: one.labelled(split) for split in ("train", "valid", "test")}
    assert (
        splits["train"]
        == Markers(examples=200).labelled("train")
        != Markers(examples=200, seed=1).labelled("train")
    )
    texts = [text for rows in splits.values() for (text,), _ in rows]
    assert len(texts) == len(set(texts)) == 300


def test_one_number_tells_nothing_of_the_label() -> None:
    rows = Markers(examples=4000, shortest=4, longest=6, words=5, numbers=2).labelled("train")
    first = Counter(
        (next(word for word in text.split() if word.isdigit()), label) for (text,), label in rows
    )
    assert all(abs(count / 4000 - 0.25) < 0.03 for count in first.values()) and len(first) == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shortest": 3}, "shortest=3 and config.data.longest=60"),
        ({"shortest": 70}, "4 <= shortest <= longest"),
        ({"numbers": 1}, "numbers=1 must be in 2 ... 100"),
        ({"words": 81}, "words=81 must be in 2 ... 80"),
    ],
)
def test_impossible_fields_are_named(fields: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=words.replace(".", r"\.")):
        Markers(**fields)
