"""Spans in tags of every known scheme, and their scores."""

import pytest

from attnlab.tasks.spans import SCHEMES, counts, look_like_spans, scheme, scores, spans


@pytest.mark.quick
def test_spans_begin_and_end_as_conlleval_has_it() -> None:
    tags = ["B-X", "I-X", "I-Y", "I-Y", "O", "I-X", "B-X", "O", "B-Y"]
    assert spans(tags) == {("X", 0, 2), ("Y", 2, 4), ("X", 5, 6), ("X", 6, 7), ("Y", 8, 9)}
    assert spans([]) == spans(["O", "O"]) == set()
    assert counts(["B-X", "I-X", "O"], ["B-X", "O", "B-X"]) == (0, 2, 1)
    assert counts(["B-X", "I-X", "O"], ["I-X", "I-X", "B-X"]) == (1, 2, 1)
    assert scores(1, 2, 1) == {"precision": 0.5, "recall": 1.0, "f1": 2 / 3}
    assert scores(0, 0, 0) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


# The same sentence in each: spans of X at words 0-2 and 3, of Y at 4-5, of X at 7.
WRITTEN = {
    "IOB1": "I-X I-X I-X B-X I-Y I-Y O I-X",
    "IOB2": "B-X I-X I-X B-X B-Y I-Y O B-X",
    "IOBES": "B-X I-X E-X S-X B-Y E-Y O S-X",
    "BILOU": "B-X I-X L-X U-X B-Y L-Y O U-X",
    "BMES": "B-X M-X E-X S-X B-Y E-Y O S-X",
    "BMEW": "B-X M-X E-X W-X B-Y E-Y O W-X",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_one_sentence_has_the_same_spans_in_every_scheme(name: str) -> None:
    tags = WRITTEN[name].split()
    assert spans(tags) == {("X", 0, 3), ("X", 3, 4), ("Y", 4, 6), ("X", 7, 8)}
    assert scheme(tags) == (name if name in SCHEMES else "IOB")
    bare = [tag[:1] for tag in tags]  # without kinds, as words of Chinese are marked
    assert scheme(bare) == scheme(tags)
    assert ("", 0, 3) in spans(bare)


def test_spans_that_a_model_writes_wrongly_are_counted_as_seqeval_does() -> None:
    """Its default mode: an end without a beginning is a span, a beginning ends the one before."""
    assert spans(["E-X", "E-X", "I-X", "S-X", "I-X"]) == {("X", k, k + 1) for k in range(5)}
    assert spans(["B-X", "B-X", "E-Y"]) == {("X", 0, 1), ("X", 1, 2), ("Y", 2, 3)}


def test_schemes_are_known_by_their_letters() -> None:
    """All but the last two sets of tags are meant as spans."""
    assert scheme(["O", "E-X"]) == "IOBES" and scheme(["B-X"]) == "IOB"
    none = ("O", "NOUN B-X", "O PER", "B-X http://a.org", "O B_X", "b-X", "NOUN VERB", "NN -LRB-")
    assert [scheme(tags.split()) for tags in none] == [None] * 8
    assert [look_like_spans(tags.split()) for tags in none] == [True] * 6 + [False] * 2
