"""Nested lists have the values of an independent reader, within their limits; the baseline knows
the first operator.
"""

import numpy as np

from attnlab.data.asked import Row
from attnlab.data.diagnostics.list_ops import ListOps


def value(words: list[str]) -> int:
    """Reads a tree from the front of a list of words, which it takes away."""
    word = words.pop(0)
    if not word.startswith("["):
        return int(word)
    values = []
    while words[0] != "]":
        values.append(value(words))
    words.pop(0)
    assert len(values) >= 2
    if word == "[MED":
        return int(np.median(values))
    return {"[MIN": min, "[MAX": max, "[SM": lambda values: sum(values) % 10}[word](values)


def test_values_are_right_and_lengths_within_limits() -> None:
    rows = ListOps(examples=200, shortest=8, longest=40, depth=4).asked("train")
    for row in rows:
        words = list(row.words)
        assert str(value(words)) == row.answers[-1] and not words
        assert 8 <= len(row.words) <= 40 and not any(row.answers[:-1])
    expected = {*map(str, range(10)), "[MIN", "[MAX", "[MED", "[SM", "]"}
    assert {word for row in rows for word in row.words} == expected


def test_the_baseline_knows_the_first_operator() -> None:
    def row(operator: str, answer: str) -> Row:
        return Row((operator, "1", "2", "]"), ("", "", "", answer))

    rows = [row("[MAX", "9"), row("[MAX", "9"), row("[MAX", "2"), row("[SM", "3")]
    assert ListOps().guesses(rows) == {"operator in front": 3 / 4}
