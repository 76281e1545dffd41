"""A key has one value within a text and another in the next; what can be recalled is marked."""

import pytest

from attnlab.data import SPLITS
from attnlab.data.associations import Associations


@pytest.mark.quick
def test_a_key_keeps_its_value_within_a_text_and_not_beyond() -> None:
    pairings = []
    for text in Associations(examples=50, length=40, keys=3, values=4).texts("train"):
        words = text.split()
        pairing: dict[str, str] = {}
        assert len(words) == 40
        for key, value in zip(words[::2], words[1::2], strict=True):
            assert key in "abc" and value in "0123" and pairing.setdefault(key, value) == value
        pairings.append(tuple(sorted(pairing.items())))
    assert len(set(pairings)) > 20


def test_what_can_be_recalled_are_values_of_keys_that_occurred() -> None:
    source = Associations()
    recalled = source.recalled("a 1 b 2 a 1 a 1 c 3 b 2")
    assert recalled == [place in (5, 7, 11) for place in range(12)]
    assert source.recalled("") == []


def test_texts_of_the_test_split_may_be_longer() -> None:
    source = Associations(examples=3, length=6, tested=10)
    lengths = {split: {len(text.split()) for text in source.texts(split)} for split in SPLITS}
    assert lengths == {"train": {6}, "valid": {6}, "test": {10}}
