"""Dates are right by the standard library, apart by day, and aligned by field."""

import contextlib
import datetime

import pytest

from attnlab.data import SPLITS
from attnlab.data.dates import FORMATS, Dates

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
