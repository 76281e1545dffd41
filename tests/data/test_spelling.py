"""The invented orthography is said by its rules, and no letter tells its sound alone."""

import collections

import pytest

from attnlab.data import SOURCES
from attnlab.data.spelling import RULES, Spelling, pronounce
from tests.refusals import check_refused

SAID = {
    **{"knot": "N AA T", "wrist": "R IH S T", "lamb": "L AE M", "lambs": "L AE M B S"},
    **{"toughen": "T AW EH N", "ghost": "G AA S T", "made": "M EY D", "mad": "M AE D"},
    **{"hope": "HH OW P", "rune": "R UW N", "site": "S AY T", "pelte": "P EH L T EH"},
    **{"butter": "B AH T EH R", "chosh": "CH AA SH", "photh": "F AA TH", "duck": "D AH K"},
    **{"quit": "K W IH T", "song": "S AA NG", "songa": "S AA N G AE", "feel": "F IY L"},
    **{"moon": "M UW N", "rain": "R EY N", "boat": "B OW T", "loud": "L AW D", "cat": "K AE T"},
    **{"cit": "S IH T", "gem": "JH EH M", "gum": "G AH M", "rosa": "R AA Z AE", "fox": "F AA K S"},
    **{"vex": "V EH K S", "jazz": "JH AE Z"},
}


def said(word: str) -> str:
    return " ".join(phoneme for _, phonemes in pronounce(word) for phoneme in phonemes)


@pytest.mark.quick
@pytest.mark.parametrize("word", SAID)
def test_words_are_said_by_the_rules(word: str) -> None:
    assert said(word) == SAID[word]


def test_a_letter_does_not_tell_its_sound_and_every_sound_is_made() -> None:
    sounds = collections.defaultdict(collections.Counter)
    patterns = collections.Counter()
    pairs = Spelling(examples=3000).pairs("train")
    assert len(dict(pairs)) == 3000 and max(len(word) for word, _ in pairs) <= 31
    for word, told in pairs:
        assert said(word) == told
        for letters, phonemes in pronounce(word):
            sounds[letters[0]][" ".join(phonemes)] += 1
            patterns[letters, " ".join(phonemes)] += 1
    assert sum(max(of.values()) for of in sounds.values()) < 0.8 * sum(
        sum(of.values()) for of in sounds.values()
    )
    outcomes = {phonemes for _, phonemes in RULES}
    assert {phonemes for _, phonemes in patterns} == outcomes


def test_alignments_link_letters_with_what_they_are_said_as() -> None:
    source = Spelling()
    expected = {(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)}
    assert source.alignment(("knaithe", "N EY TH EH")) == expected
    assert source.alignment(("fox", "F AA K S")) == {(0, 0), (1, 1), (2, 2), (2, 3)}
    with pytest.raises(ValueError, match="'fox' is not said 'F AA'"):
        source.alignment(("fox", "F AA"))
    with pytest.raises(ValueError, match="no rule for 'yo'"):
        pronounce("yo")


@pytest.mark.quick
def test_what_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.data.spelling._ONSETS", ("b",))
    check_refused(r"config.data.syllables=0 must be at least 1", Spelling, syllables=0)
    words = r"config.data.syllables=1: 20000 different words for train are too many, \d+ were found"
    check_refused(words, Spelling(syllables=1).pairs, "train")
    assert SOURCES.resolve("spelling") is Spelling
