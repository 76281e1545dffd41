"""Gold corpora in, rows of a table out."""

import pathlib

import pytest

from attnlab.analysis.alignment import Gold
from benchmarks.alignment_error import Pair, read_pairs, score, spaced
from tests.refusals import check_refused


def corpus(folder: pathlib.Path, links: str = "0-1 1p0\n0-0\n") -> str:
    """A corpus of two pairs on disk; its prefix."""
    (folder / "gold.en").write_text("a b\nc\n")
    (folder / "gold.fr").write_text("x y\nz\n")
    (folder / "gold.align").write_text(links)
    return str(folder / "gold")


def test_pairs_are_read_in_either_direction(tmp_path: pathlib.Path) -> None:
    gold = Gold(frozenset({(0, 1)}), frozenset({(0, 1), (1, 0)}))
    prefix, english, french = corpus(tmp_path), ["a", "b"], ["x", "y"]
    forward = read_pairs(prefix, "en", "fr", flip=False)[0]
    back = read_pairs(prefix, "fr", "en", flip=True)[0]
    assert forward == Pair(english, french, gold)
    assert back == Pair(french, english, gold.flipped())


@pytest.mark.parametrize(
    ("links", "complaint"),
    [("0-0\n", "2 lines of en, 2 of fr, 1 of align"), ("0-0\n1-0\n", "line 2: a link to a word")],
)
def test_files_that_do_not_fit_together_are_told(
    tmp_path: pathlib.Path, links: str, complaint: str
) -> None:
    check_refused(complaint, read_pairs, corpus(tmp_path, links), "en", "fr", flip=False)


def test_rows_have_counts_and_percentages_of_the_pairs_that_are_short_enough(
    tmp_path: pathlib.Path,
) -> None:
    pairs = read_pairs(corpus(tmp_path), "en", "fr", flip=False)
    found = {"mine": [{(0, 1), (0, 0)}, {(0, 0)}]}
    rows = score("gold", pairs, found, 0)
    counts, mine = ("gold", "all", 2, 3, 2, 3), ("mine", 20.0, 66.7, 100.0)
    assert rows[0] == (*counts, *mine)  # error 1 - (2 + 2) / (3 + 2)
    assert rows[1][6:] == ("chance", pytest.approx(100 * (1 - (3 / 2 + 2) / 5)), None, None)
    assert score("gold", pairs, found, 1)[0] == ("gold", 1, 1, 1, 1, 1, "mine", 0.0, 100.0, 100.0)


def test_spacing_is_that_of_ordinary_text_and_keeps_every_character() -> None:
    english = ["they", "'re", "(", "not", ")", "so", ",", "are", "n't", "they", "Mr.", "B.", "?"]
    assert spaced(english, "en") == "they're (not) so, aren't they Mr. B.?"
    french = ["l'", "homme", ",", "souvenons", "-", "nous", ":", "va", "!"]
    assert spaced(french, "fr") == "l'homme, souvenons-nous : va !"
    assert spaced(["a", ",", "b"], "de") == "a , b"
