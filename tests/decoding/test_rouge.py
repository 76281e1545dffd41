"""ROUGE against numbers of the package rouge-score 0.1.2, and what follows from its definition."""

import itertools

import pytest

from attnlab.decoding.rouge import longest_common, rouge, rows

ONE = "The cat sat on the mat, twice: the end."
OTHER = "A cat sat on the red mat. The end!"


def test_the_numbers_are_those_of_rouge_score() -> None:
    expected = {"rouge1": 77.777778, "rouge2": 50.0, "rougeL": 77.777778}
    assert rouge(ONE, OTHER) == pytest.approx(expected, abs=1e-6)
    assert rows([ONE, "x"], [OTHER, "y"])["rouge2"] == [[pytest.approx(50.0), 1.0], [0.0, 1.0]]


def test_equal_texts_have_all_and_different_ones_nothing() -> None:
    assert set(rouge("a b c", "A, b: c!").values()) == {100.0}
    assert set(rouge("a b c", "d e f").values()) == set(rouge("", "a").values()) == {0.0}
    assert rouge("a", "a") == {"rouge1": 100.0, "rouge2": 0.0, "rougeL": 100.0}  # no pair of words
    assert set(rouge("Grüße aus Köln", "grüße aus köln").values()) == {100.0}


@pytest.mark.parametrize("text", ["abcab", "bbaac", "", "c"])
@pytest.mark.parametrize("other", ["bacbca", "aaab", "ccc"])
def test_the_longest_common_subsequence_is_that_of_all(text: str, other: str) -> None:
    parts = {words for n in range(len(text) + 1) for words in itertools.combinations(text, n)}
    shared = [words for words in parts if words in set(itertools.combinations(other, len(words)))]
    assert longest_common(list(text), list(other)) == max(map(len, shared))
