"""Texts to be copied: lengths and words as asked, splits apart, gold alignment on one of the
diagonals.
"""

from __future__ import annotations

from collections import Counter

import pytest

from attnlab.data import SPLITS
from attnlab.data.copying import Copying
from attnlab.data.generated import split_of
from attnlab.errors import UserError


@pytest.mark.quick
def test_every_length_and_every_word_is_equally_likely_and_the_target_is_the_source() -> None:
    pairs = Copying(examples=6_000, shortest=3, longest=6, symbols=5).pairs("train")
    assert len(pairs) == 6_000 and all(source == target for source, target in pairs)
    lengths = Counter(len(source.split()) for source, _ in pairs)
    assert set(lengths) == {3, 4, 5, 6}
    assert all(abs(count - 1_500) < 150 for count in lengths.values())
    words = Counter(word for source, _ in pairs for word in source.split())
    assert set(words) == set("abcde") and max(words.values()) < 1.1 * min(words.values())


def test_splits_are_apart_whatever_the_seed() -> None:
    found = {
        split: {s for seed in (0, 1) for s, _ in Copying(2_000, 300, 300, seed).pairs(split)}
        for split in SPLITS
    }
    for split, sources in found.items():
        assert {split_of(source) for source in sources} == {split}
    assert (
        Copying(valid=30).pairs("valid")
        == Copying(valid=50).pairs("valid")[:30]
        != Copying(valid=30, seed=1).pairs("valid")
    )


def test_alignment_is_the_diagonal_and_a_wrong_pair_is_refused() -> None:
    assert Copying().alignment(("a b a", "a b a")) == {(0, 0), (1, 1), (2, 2)}
    with pytest.raises(ValueError, match="'b a' does not repeat 'a b'"):
        Copying().alignment(("a b", "b a"))


def test_a_reversed_target_is_the_source_from_behind() -> None:
    kept, turned = Copying(examples=200), Copying(examples=200, order="reversed")
    for (source, target), (same, reverse) in zip(
        kept.pairs("train"), turned.pairs("train"), strict=True
    ):
        assert source == same and reverse == target[::-1]
        words = source.split()
        assert all(reverse.split()[j] == words[i] for i, j in turned.alignment((source, reverse)))
    assert turned.alignment(("a b a c", "c a b a")) == {(0, 3), (1, 2), (2, 1), (3, 0)}
    with pytest.raises(ValueError, match="'a b' does not repeat 'a b'"):
        turned.alignment(("a b", "a b"))


def test_sorted_words_and_longer_ones_in_the_test_split() -> None:
    source = Copying(examples=50, test=50, shortest=2, longest=6, order="sorted", tested=9)
    for words, answer in (pair for split in SPLITS[:2] for pair in source.pairs(split)):
        assert answer.split() == sorted(words.split()) and 2 <= len(words.split()) <= 6
    lengths = {len(words.split()) for words, _ in source.pairs("test")}
    assert lengths == {7, 8, 9}
    # of equal words the first in the source comes first
    assert source.alignment(("b a b", "a b b")) == {(1, 0), (0, 1), (2, 2)}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"tested": 20}, "tested=20 must be 0 or above config.data.longest=20"),
        ({"shortest": 0}, "config.data.shortest=0 .* expected 1 <= shortest <= longest"),
        ({"shortest": 5, "longest": 4}, "shortest=5 and config.data.longest=4"),
        ({"symbols": 1}, r"config.data.symbols=1 must be in 2 \.\.\. 26"),
        ({"symbols": 27}, "config.data.symbols=27"),
        ({"longest": 2}, r"config.data.longest=2: 20\^2 different texts are too few"),
        ({"examples": 0}, "config.data.examples=0"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Copying(**wrong)
