"""Texts to be copied have the lengths and words that are asked for, and a gold alignment on one of
the diagonals.
"""

from collections import Counter

import pytest

from attnlab.data import SPLITS
from attnlab.data.copying import Copying


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
