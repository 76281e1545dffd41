"""Questions and passages as rows of ids; and the characters that each piece stands for."""

import numpy as np
import pytest

from attnlab.data import passages
from attnlab.data.passages import Question, Windows, located
from attnlab.data.vocabulary import BOS, EOS, KINDS, Vocabulary

PASSAGE = "It's a big, old dog\nfrom Köln."


def test_rows_types_words_and_spans() -> None:
    """The pieces of the span are those of the words that the answer touches, whole or in part."""
    begin = PASSAGE.index("old")
    asked = [
        Question("Which dog?", PASSAGE, (("old dog", begin), ("It", 0))),
        Question("It", "It", (("I", 0),)),
    ]
    words = Vocabulary.train([PASSAGE, "Which dog?"], "char", 100, 1)
    examples = passages.encode(words, asked)
    source, types, numbers = (examples.packed(name)[0] for name in ("source", "types", "words"))
    (first, last), (one, other) = examples["span"].block(np.arange(2), 0)
    assert words.decode(source[first : last + 1]).split() == ["old", "dog"]
    assert source[0] == BOS and source[-1] == EOS and (source == EOS).sum() == 2
    assert types.tolist() == [0] * int((types == 0).sum()) + [1] * int(types.sum())
    assert source[types == 0][-1] == EOS and numbers[types == 0].max() == 0 == numbers[-1]
    cut = [PASSAGE[i:j] for i, j in passages.cut(PASSAGE)]
    assert cut == ["It", "'", "s", "a", "big", ",", "old", "dog", "from", "Köln", "."]
    assert numbers[first] == cut.index("old") + 1 and numbers[last] == cut.index("dog") + 1
    assert examples.packed("words")[1][[one, other]].tolist() == [1, 1] and other == one + 1


@pytest.mark.parametrize("stride", [1, 3, 5])
def test_windows_overlap_and_know_which_answers_they_hold(stride: int) -> None:
    """Against slices of the whole row: room for 12 - 4 - 1 tokens, a question of 2."""
    passage = "a b c d e f g h i j k l m n o p"
    answers = ("c d", "h i j", "p", "a b c d e f g h i")
    asked = [Question("x y z", passage, ((text, passage.index(text)),)) for text in answers]
    asked += [Question("x", "a b", ()), Question("x y", "a b c d e f g", (("g", 12),))]
    words = Vocabulary.train([passage, "x y z"], "word", 100, 1)
    whole = passages.encode(words, asked)
    actual = passages.encode(words, asked, Windows(12, stride, 2))
    owners = actual["question"].block(np.arange(len(actual)), 0)
    spans = actual["span"].block(np.arange(len(actual)), 0)
    uncut = whole["span"].block(np.arange(len(whole)), 0)
    assert sorted(set(owners)) == list(range(6)) and (np.diff(owners) >= 0).all()
    for number, one in enumerate(asked):
        body = whole.packed("source")[number][len(one.question.split()) + 2 : -1]
        head, rows = min(2, len(one.question.split())) + 2, np.flatnonzero(owners == number)
        begins = [stride * step for step in range(len(rows))]
        room = 12 - head - 1
        assert begins[-1] + room >= len(body) and (len(rows) == 1 or begins[-2] + room < len(body))
        first, last = uncut[number] - len(one.question.split()) - 2
        for row, begin in zip(rows.tolist(), begins, strict=True):
            source = actual.packed("source")[row]
            assert len(source) <= 12 and (source[head - 1], source[-1]) == (EOS, EOS)
            np.testing.assert_array_equal(source[head:-1], body[begin : begin + room])
            numbers = actual.packed("words")[row][head:-1]
            assert numbers.tolist() == [begin + at + 1 for at in range(len(numbers))]
            inside = one.answers and begin <= first and last < begin + room
            expected = [first - begin + head, last - begin + head] if inside else [0, 0]
            assert spans[row].tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_each_piece_is_some_characters_of_its_text(kind: str) -> None:
    """The ids are those of `encode_all`; what no piece stands for is blank, or put on the letter
    before it by the normalization.
    """
    texts = ["The dog's\u00a0 bone,\n\u2581old  Cafe\u0301", "", "  ", "東京 dog"]
    vocabulary = Vocabulary.train(texts, kind, 60, 1, lowercase=True)
    for text, (ids, places) in zip(texts, located(vocabulary, texts), strict=True):
        np.testing.assert_array_equal(ids, vocabulary.encode_all([text])[0])
        assert places.shape == (len(ids), 2) and (np.diff(places) > 0).all()
        covered = {at for begin, end in places.tolist() for at in range(begin, end)}
        left = {one for at, one in enumerate(text) if at not in covered}
        assert all(one.isspace() or one in "\u2581\u0301" for one in left)
        if kind == "char":
            first = [text[begin:end].lower() for begin, end in places[:5].tolist()]
            assert first == list(text.lower()[: min(5, len(ids))])
