"""Texts with questions as ids, guesses, and sources that do not fit."""

import dataclasses
from collections import Counter

import pytest

from attnlab.data import asked
from attnlab.data.asked import Row
from attnlab.data.dataset import fingerprint_of_rows
from tests.refusals import check_refused

SPACED = {"kind": "spaced", "size": 100, "min_frequency": 1}
ROWS = [
    Row(("a", "b", "c"), ("", "x", ""), (2,)),
    Row(("c",), ("y",), (1,)),
    Row(("b", "b"), ("x", "x"), (1, 2)),
]


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The same three rows in every split."""

    broken: str = ""
    group = "place"

    def asked(self, split: str) -> list[Row]:
        if self.broken == "short":
            return [Row(("a", "b"), ("x",))]
        return [Row(("a",), ("",))] if self.broken == "silent" else ROWS

    def guesses(self, rows: list[Row]) -> dict[str, float]:
        return {"always x": 0.75}


NODE = {"name": f"{__name__}:Fixed"}


def test_answers_stand_at_their_words_and_padding_elsewhere() -> None:
    data = asked.AskedTexts.load(NODE, SPACED)
    read, special = data.examples["train"], data.vocabulary.special
    for row, source, target in zip(ROWS, read.packed("source"), read.packed("target"), strict=True):
        assert data.vocabulary.decode(source[1:]).split() == list(row.words)
        assert source[0] == special.bos
        message = [data.vocabulary.decode([one]) for one in target]
        assert message == ["", *row.answers]
    assert data.questions("valid") == 4 and data.size("train") == 3 and data.group == "place"
    assert data.extra["valid"] == {"chance": 0.5, "majority": 0.75, "always x": 0.75}
    assert "3 texts, 6 words, 4 questions" in data.about("valid")
    assert data.fingerprints["train"] == fingerprint_of_rows(ROWS)


def test_an_answer_that_training_never_asks_for_is_no_chance() -> None:
    actual = asked.guesses(Counter(x=3, y=1), ["z", "y"])
    assert actual == {"chance": 0.25, "majority": 0.0}


@pytest.mark.parametrize(
    ("data", "vocabulary", "words"),
    [
        ({**NODE, "broken": "short"}, SPACED, "has 2 words and 1 answers"),
        ({**NODE, "broken": "silent"}, SPACED, "asks for no answer"),
        ({"name": "mqar", "examples": 50}, {**SPACED, "kind": "char"}, "into . pieces, but"),
    ],
)
def test_what_does_not_fit_is_one_line(
    data: dict[str, object], vocabulary: dict[str, object], words: str
) -> None:
    check_refused(words, asked.AskedTexts.load, data, vocabulary)


def test_powers() -> None:
    powers = [asked.power_of_two(number) for number in (1, 2, 3, 4, 5, 64, 65)]
    assert powers == [1, 2, 4, 4, 8, 64, 128]
