"""From a source of texts to ids: splits, the vocabulary of a run, counts, and what can be
recalled.
"""

import dataclasses

import pytest

from attnlab.data.text import Texts
from attnlab.data.vocabulary import EOS, UNK
from tests.refusals import check_refused

WORDS = {"kind": "word", "size": 50, "min_frequency": 1}


@dataclasses.dataclass(frozen=True)
class Few:
    """Three texts to learn from, one of them blank; others have a word more."""

    def texts(self, split: str) -> list[str]:
        return ["a b", "", "b b"] + ["a new b"] * (split != "train")


@dataclasses.dataclass(frozen=True)
class Telling(Few):
    """The same; every b after an a is known."""

    def recalled(self, text: str) -> list[bool]:
        words = text.split()
        return [word == "b" and "a" in words[:number] for number, word in enumerate(words)]


FEW, TELLING = {"name": f"{__name__}:Few"}, {"name": f"{__name__}:Telling"}


@pytest.mark.quick
def test_ids_end_with_eos_and_the_vocabulary_is_that_of_training() -> None:
    data = Texts.load(FEW, WORDS, splits=("train", "valid", "test"))
    a, b = (int(data.vocabulary.encode_all([word])[0][0]) for word in "ab")
    wanted = [[a, b, EOS], [EOS], [b, b, EOS], [a, UNK, b, EOS]]
    assert [ids.tolist() for ids in data.ids["valid"]] == wanted
    assert data.counts("train") == {"texts": 3, "tokens": 7, "unknown": 0, "characters": 4 + 1 + 4}
    expected = {"texts": 4, "tokens": 11, "unknown": 1, "characters": 4 + 1 + 4 + 8}
    assert data.counts("valid") == expected
    assert data.about("valid") == "4 texts, 11 tokens (9.1% unknown)"
    assert data.fingerprints["valid"] == data.fingerprints["test"] != data.fingerprints["train"]
    assert data.recalled == {}


def test_what_can_be_recalled_goes_with_the_ids() -> None:
    data = Texts.load(TELLING, WORDS, splits=("valid",))
    expected = [[0, 1, 0], [0], [0, 0, 0], [0, 0, 1, 0]]
    assert [marks.tolist() for marks in data.recalled["valid"]] == expected
    words = "word by word what can be recalled: set config.vocabulary.kind=word"
    check_refused(words, Texts.load, TELLING, {**WORDS, "kind": "char"})


@dataclasses.dataclass(frozen=True)
class Blank(Few):
    """The same texts with more blanks."""

    def texts(self, split: str) -> list[str]:
        return [f"  {text.replace(' ', '   ')} " for text in super().texts(split)]


def test_blanks_that_no_token_stands_for_are_no_characters() -> None:
    """Words are scored by the characters of what the vocabulary sees, not of what is in the
    file.
    """
    data, loose = (Texts.load({"name": f"{__name__}:{name}"}, WORDS) for name in ("Few", "Blank"))
    assert data.counts("valid") == loose.counts("valid")


def test_a_split_with_an_unknown_character_is_not_spelt() -> None:
    data = Texts.load(FEW, {**WORDS, "kind": "char"})
    assert data.counts("train") == {"texts": 3, "tokens": 9, "unknown": 0, "characters": 9}
    assert data.spelt("train") and not data.spelt("valid") and data.counts("valid")["unknown"] == 3
