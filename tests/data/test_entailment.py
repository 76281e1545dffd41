"""Labels of made-up inference are those of a reader that shares no code with the generator, and
neither sentence alone tells them.
"""

from collections import Counter

import pytest

from attnlab.data.entailment import ACTIONS, LABELS, Entailment

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
