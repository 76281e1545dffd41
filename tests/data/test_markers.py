"""The label is the sum of two hidden numbers; neither place nor length tells it."""

from collections import Counter

import pytest

from attnlab.data.markers import Markers


@pytest.mark.quick
def test_the_label_is_the_sum_of_the_two_numbers() -> None:
    rows = Markers(examples=300).labelled("train")
    assert len(rows) == 300
    for (text,), label in rows:
        words = text.split()
        actual = [int(word) for word in words if word.isdigit()]
        assert len(actual) == 2 and sum(actual) % 5 == int(label) and 30 <= len(words) <= 60
    counts = Counter(label for _, label in rows)
    assert set(counts) == set("01234") and min(counts.values()) > 35


def test_one_number_tells_nothing_of_the_label() -> None:
    rows = Markers(examples=4000, shortest=4, longest=6, words=5, numbers=2).labelled("train")
    first = Counter((next(filter(str.isdigit, text.split())), label) for (text,), label in rows)
    assert all(abs(count / 4000 - 0.25) < 0.03 for count in first.values()) and len(first) == 4
