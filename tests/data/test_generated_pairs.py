"""Texts to be copied have the lengths and words that are asked for, and a gold alignment on one of the
diagonals; dates are right by the standard library, apart by day, and aligned by field; the invented
orthography is said by its rules, and no letter tells its sound alone.
"""

import contextlib
import datetime
from collections import Counter, defaultdict

import pytest

from attnlab.data import SOURCES, SPLITS
from attnlab.data.generated_pairs import FORMATS, RULES, Copying, Dates, Spelling, pronounce
from tests.refusals import check_refused


@pytest.mark.quick
def test_every_length_and_every_word_is_equally_likely_and_the_target_is_the_source() -> None:
    pairs = Copying(examples=6_000, shortest=3, longest=6, symbols=5).pairs("train")
    assert len(pairs) == 6_000 and all(source == target for source, target in pairs)
    lengths = Counter(len(source.split()) for source, _ in pairs)
    assert set(lengths) == {3, 4, 5, 6}
    assert all(abs(count - 1_500) < 150 for count in lengths.values())
    words = Counter(word for source, _ in pairs for word in source.split())
    assert set(words) == set("abcde") and max(words.values()) < 1.1 * min(words.values())


def test_alignments_are_diagonals_and_a_wrong_pair_is_refused() -> None:
    assert Copying().alignment(("a b a", "a b a")) == {(0, 0), (1, 1), (2, 2)}
    kept, turned = Copying(examples=200), Copying(examples=200, order="reversed")
    both = zip(kept.pairs("train"), turned.pairs("train"), strict=True)
    for (source, target), (same, reverse) in both:
        assert source == same and reverse == target[::-1]
        words = source.split()
        assert all(reverse.split()[j] == words[i] for i, j in turned.alignment((source, reverse)))
    assert turned.alignment(("a b a c", "c a b a")) == {(0, 3), (1, 2), (2, 1), (3, 0)}
    for source, pair in ((Copying(), ("a b", "b a")), (turned, ("a b", "a b"))):
        with pytest.raises(ValueError, match=f"'{pair[1]}' does not repeat 'a b'"):
            source.alignment(pair)


def test_sorted_words_and_longer_ones_in_the_test_split() -> None:
    source = Copying(examples=50, test=50, shortest=2, longest=6, order="sorted", tested=9)
    for words, answer in (pair for split in SPLITS[:2] for pair in source.pairs(split)):
        assert answer.split() == sorted(words.split()) and 2 <= len(words.split()) <= 6
    lengths = {len(words.split()) for words, _ in source.pairs("test")}
    assert lengths == {7, 8, 9}
    # of equal words the first in the source comes first
    assert source.alignment(("b a b", "a b b")) == {(1, 0), (0, 1), (2, 2)}


STYLES = ("%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d %Y", "%d/%m/%Y", "%Y/%m/%d", "%d of %B %Y")


def read_date(text: str) -> str:
    """The ISO date that a text means, by the standard library's parser."""
    for style in (*STYLES, "%A, %d %B %Y", "%d.%m.%y"):
        with contextlib.suppress(ValueError):
            date = datetime.datetime.strptime(text, style)
            # the standard library turns the century at 69, the generator at 50
            if style.endswith("%y") and date.year >= 2050:
                date = date.replace(year=date.year - 100)
            named = text.partition(",")[0] if style.startswith("%A") else f"{date:%A}"
            return date.date().isoformat() if named.lower() == f"{date:%A}".lower() else named
    return ""


@pytest.mark.quick
def test_every_target_is_what_the_standard_library_reads() -> None:
    pairs = Dates().pairs("train")[:10_000]
    assert len(pairs) == 10_000
    assert all(read_date(source) == target for source, target in pairs)


def test_no_day_is_in_two_splits_and_valid_and_test_repeat_none() -> None:
    source = Dates(examples=66_000)
    days = {split: [target for _, target in source.pairs(split)] for split in SPLITS}
    assert [len(actual) for actual in days.values()] == [66_000, 1_000, 1_000]
    assert len(set(days["train"])) == 65_744  # 90 % of the days of two centuries
    assert len(set(days["train"] + days["valid"] + days["test"])) == 65_744 + 2_000
    assert min(days["train"]) < "1901" and max(days["train"]) > "2099"


def test_all_styles_occur_about_equally_often_and_half_in_lower_case() -> None:
    pairs = Dates(examples=9_000).pairs("train")
    marks = {mark: sum(mark in text for text, _ in pairs) for mark in ("/", ".", " of ")}
    # two styles, of nine where the two-digit year is possible, of eight elsewhere
    assert 1_900 < marks["/"] < 2_500
    assert 400 < marks["."] < 620  # half of the years
    assert 900 < marks[" of "] < 1_250
    worded = [text for text, _ in pairs if any(letter.isalpha() for letter in text)]
    assert 0.45 < sum(text.islower() for text in worded) / len(worded) < 0.55
    assert len(FORMATS) == 9


def test_alignment_links_the_fields_and_not_the_weekday() -> None:
    source, target = "friday, 3 march 1967", "1967-03-03"
    links = Dates().alignment((source, target))
    spans = {j: "".join(source[i] for i, k in sorted(links) if k == j) for j in range(len(target))}
    expected = ["1967", "1967", "", "march", "march", "", "3", "3"]
    assert [spans[j] for j in (0, 3, 4, 5, 6, 7, 8, 9)] == expected
    assert min(i for i, _ in links) == source.index("3")
    links = Dates().alignment(("02/02/2002", "2002-02-02"))  # of equal numbers the right one
    assert {i for i, j in links if j == 5} == {3, 4}  # the month stands second
    assert {i for i, j in links if j == 8} == {0, 1}
    for pair in Dates().pairs("valid"):
        assert {j for _, j in Dates().alignment(pair)} == {0, 1, 2, 3, 5, 6, 8, 9}
    with pytest.raises(ValueError, match="not a way to write"):
        Dates().alignment(("3 March 1967", "1967-03-04"))


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
    sounds = defaultdict(Counter)
    patterns = Counter()
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
    monkeypatch.setattr("attnlab.data.generated_pairs._ONSETS", ("b",))
    check_refused(r"config.data.syllables=0 must be at least 1", Spelling, syllables=0)
    words = r"config.data.syllables=1: 20000 different words for train are too many, \d+ were found"
    check_refused(words, Spelling(syllables=1).pairs, "train")
    assert SOURCES.resolve("spelling") is Spelling
