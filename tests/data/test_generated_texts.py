"""Made-up texts are what an independent reading says. A key has one value within a text and another in the
next, and what can be recalled is marked. The label is the value of the key that is asked for, the sum
of two hidden numbers, or that of a reader of made-up inference; neither place nor length nor a
sentence alone tells it.
"""

from collections import Counter

import pytest

from attnlab.data import SPLITS
from attnlab.data.generated_texts import ACTIONS, LABELS, Associations, Entailment, Lookup, Markers


@pytest.mark.quick
def test_a_key_keeps_its_value_within_a_text_and_not_beyond() -> None:
    pairings = []
    for text in Associations(examples=50, length=40, keys=3, values=4).texts("train"):
        words = text.split()
        pairing: dict[str, str] = {}
        assert len(words) == 40
        for key, value in zip(words[::2], words[1::2], strict=True):
            assert key in "abc" and value in "0123" and pairing.setdefault(key, value) == value
        pairings.append(tuple(sorted(pairing.items())))
    assert len(set(pairings)) > 20


def test_what_can_be_recalled_are_values_of_keys_that_occurred() -> None:
    source = Associations()
    recalled = source.recalled("a 1 b 2 a 1 a 1 c 3 b 2")
    assert recalled == [place in (5, 7, 11) for place in range(12)]
    assert source.recalled("") == []


def test_texts_of_the_test_split_may_be_longer() -> None:
    source = Associations(examples=3, length=6, tested=10)
    lengths = {split: {len(text.split()) for text in source.texts(split)} for split in SPLITS}
    assert lengths == {"train": {6}, "valid": {6}, "test": {10}}


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


MEANING = {word: n for n, action in enumerate(ACTIONS) for forms in action for word in forms}


def read(clause: str) -> tuple[str, int, bool]:
    """Who, what, and whether it is denied."""
    person, *rest = clause.split()
    return person, MEANING[rest[-1]], rest[:-1] == ["does", "not"]


def judged(premise: str, hypothesis: str) -> str:
    person, action, denied = read(hypothesis)
    message = {(who, what): no for who, what, no in map(read, premise.split(" and "))}
    if (person, action) not in message:
        return "neutral"
    return "entailment" if message[person, action] == denied else "contradiction"


@pytest.mark.quick
@pytest.mark.parametrize("clauses", [2, 4])
def test_labels_are_those_of_a_reader(clauses: int) -> None:
    rows = Entailment(examples=600, clauses=clauses).labelled("train")
    assert all(judged(*texts) == label for texts, label in rows)
    assert all(len(premise.split(" and ")) == clauses for (premise, _), _ in rows)
    counts = Counter(label for _, label in rows)
    assert set(counts) == set(LABELS) and min(counts.values()) > 150


def test_neither_sentence_alone_tells_the_label() -> None:
    rows = Entailment(examples=6000).labelled("train")
    for of in (
        lambda premise, hypothesis: read(hypothesis)[1:],
        lambda premise, hypothesis: read(hypothesis)[0],
        lambda premise, hypothesis: hypothesis.split()[-1],
        lambda premise, hypothesis: premise.count("not"),
        lambda premise, hypothesis: read(premise.split(" and ")[0])[1],
    ):
        groups = Counter(of(*texts) for texts, _ in rows)
        for key in [key for key, count in groups.items() if count > 300]:
            share = Counter(label for texts, label in rows if of(*texts) == key)
            assert all(abs(share[label] / groups[key] - 1 / 3) < 0.08 for label in LABELS), key
