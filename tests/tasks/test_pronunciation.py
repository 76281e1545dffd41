"""Error rates of phonemes and words are those counted by hand; a word may have several
pronunciations.
"""

import functools
from typing import Any

import pytest

from attnlab.tasks import TASKS
from attnlab.tasks.pronunciation import Pronunciation
from tests.tasks.tiny import check_items, loader, noisy

PAIRS = [("ab", "A B"), ("cab", "K A B"), ("ab", "A B B"), ("baba", "B A B A")]
SMALL = [
    *("system.embedding=8", "system.encoder=8", "system.decoder=8", "system.maxout=6"),
    *("system.attention.score.hidden=8", "batch.buckets=8", "batch.max_length=8"),
    f"data={__name__}:Words",
]


class Words:
    """The same few pairs in every split."""

    def pairs(self, split: str) -> list[tuple[str, str]]:
        return PAIRS


task = functools.cache(loader("g2p.py:rnnsearch", SMALL, ("test",)))


def answering(answers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the task answer so; the words that it was asked for."""
    asked: list[str] = []

    def translate(self: Any, params: Any, sources: list[str], **how: Any) -> list[list[str]]:
        asked.extend(sources)
        return [[answers[word]] for word in sources]

    monkeypatch.setattr(Pronunciation, "translate", translate)
    monkeypatch.setattr(Pronunciation, "text", lambda self, answer: answer)
    return asked


@pytest.mark.quick
def test_the_nearest_pronunciation_counts_each_word_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 + 3 + 4 phonemes: "ab" as its second pronunciation, one replaced and one missing in "cab",
    "baba" with one too many.
    """
    asked = answering({"ab": "A B B", "cab": "G A", "baba": "B A B A K"}, monkeypatch)
    scores, outputs = task().score(None, "test")
    assert asked == ["ab", "cab", "baba"] and outputs == ["A B B", "G A", "A B B", "B A B A K"]
    rates = {"phoneme_error_rate": pytest.approx(3 / 10), "word_error_rate": pytest.approx(2 / 3)}
    assert scores == rates
    assert set(scores) | {"loss", "perplexity", "accuracy"} == set(Pronunciation.measures)
    answering({"ab": "A B", "cab": "K A B", "baba": "B A B A"}, monkeypatch)
    assert task().score(None, "test")[0] == {"phoneme_error_rate": 0.0, "word_error_rate": 0.0}


def test_scores_are_made_of_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word with two pronunciations is one example."""
    answering({"ab": "A B B", "cab": "G A", "baba": "B A B A K"}, monkeypatch)
    one, names = task(), set(Pronunciation.measures)
    items = check_items(one, noisy(one), "test", names)
    assert items.rows["phoneme_error_rate"].tolist() == [[0, 3], [2, 3], [1, 4]]
    assert items.rows["word_error_rate"][:, 0].tolist() == [0, 1, 1]
    assert items.rows["loss"][:, 1].tolist() == [3 + 4, 4, 5]


@pytest.mark.quick
def test_letters_are_one_vocabulary_and_phonemes_another() -> None:
    letters, phonemes = task().vocabularies
    assert letters.settings["kind"] == "char" and letters.size == 4 + 3
    assert phonemes.settings["kind"] == "spaced" and phonemes.size == 4 + 3
    assert phonemes.decode(phonemes.encode_all(["K A B"])[0]) == "K A B"
    assert TASKS.resolve("pronunciation") is Pronunciation
