"""Corpus scores are sacrebleu's own, with signatures; error rates are those by hand and by recursion;
ROUGE has the numbers of the package rouge-score 0.1.2, and what follows from its definition.
"""

import functools
import itertools
import random

import pytest

from attnlab.decoding.metrics import corpus_scores, edit_distance, error_rates, lcs_length, rouge
from attnlab.errors import UserError

HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]


@pytest.mark.quick
def test_signatures_say_what_was_done() -> None:
    scores = corpus_scores(HYPOTHESES, REFERENCES)
    assert scores["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert scores["chrf_signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|")
    assert 0 < scores["chrf"] < 100 and scores["exact"] == pytest.approx(1 / 3)
    lower = corpus_scores(["A B C D "], ["a b c d"], lowercase=True)
    assert lower["bleu_signature"].startswith("nrefs:1|case:lc|eff:no|tok:13a")
    assert (lower["bleu"], lower["chrf"], lower["exact"]) == pytest.approx((100.0, 100.0, 1.0))
    assert corpus_scores(["A"], ["a"])["exact"] == 0.0


def test_nothing_in_common_is_zero() -> None:
    """Smoothing does not rescue a corpus that shares no word with its references."""
    scores = corpus_scores(["a b c d e"], ["v w x y z"])
    assert (scores["bleu"], scores["exact"]) == (0.0, 0.0)
    assert corpus_scores([""], ["a b"])["bleu"] == 0.0


def test_bad_input_is_one_line() -> None:
    with pytest.raises(UserError, match="no hypotheses"):
        corpus_scores([], [])
    with pytest.raises(UserError, match="3 hypotheses but 1 references: one for each is needed"):
        corpus_scores(HYPOTHESES, ["a"])


def test_edits_are_counted_as_the_recursion_counts_them() -> None:
    draw = random.Random(0)
    for _ in range(50):
        first, other = ("".join(draw.choices("abc", k=draw.randrange(6))) for _ in range(2))

        @functools.cache
        def fewest(i: int, j: int, first: str = first, other: str = other) -> int:
            if i == 0 or j == 0:
                return i + j
            replaced = fewest(i - 1, j - 1) + (first[i - 1] != other[j - 1])
            return min(fewest(i - 1, j) + 1, fewest(i, j - 1) + 1, replaced)

        least = fewest(len(first), len(other))
        assert edit_distance(first, other) == least == edit_distance(other, first)
    pairs = {("kitten", "sitting"): 3, ("", "abc"): 3, ("abc", "abc"): 0}
    assert {pair: edit_distance(*pair) for pair in pairs} == pairs


@pytest.mark.quick
def test_the_nearest_reference_counts_with_its_own_length() -> None:
    assert error_rates(["abcd"], [["xyz", "abcde"]]) == (1 / 5, 1.0)
    # two of four are as many as one of one is not
    assert error_rates(["ab", "cd"], [["ab"], ["cdef", "c"]]) == (2 / 6, 0.5)
    assert error_rates(["", "a"], [["ab"], ["a"]]) == (2 / 3, 0.5)
    for hypotheses, references, words in (
        (["a"], [], "1 hypotheses"),
        ([], [], "0 hypotheses"),
        ([""], [[""]], "no token"),
    ):
        with pytest.raises(UserError, match=words):
            error_rates(hypotheses, references)


ONE = "The cat sat on the mat, twice: the end."
OTHER = "A cat sat on the red mat. The end!"


def test_the_numbers_are_those_of_rouge_score() -> None:
    expected = {"rouge1": 77.777778, "rouge2": 50.0, "rougeL": 77.777778}
    assert rouge(ONE, OTHER) == pytest.approx(expected, abs=1e-6)


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
    assert lcs_length(list(text), list(other)) == max(map(len, shared))
