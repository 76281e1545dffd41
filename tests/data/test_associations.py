"""Keys and values: one value for a key within a text, another pairing in the next, and what can be
recalled.
"""

from __future__ import annotations

import pytest

from attnlab.data import SPLITS
from attnlab.data.associations import Associations
from attnlab.errors import UserError


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
    assert source.recalled("a 1 b 2 a 1 a 1 c 3 b 2") == [False] * 5 + [
        True,
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert source.recalled("") == []


def test_splits_and_seeds_differ_and_equal_fields_agree() -> None:
    source = Associations(examples=30, valid=20, test=10)
    texts = {split: source.texts(split) for split in ("train", "valid", "test")}
    assert {split: len(found) for split, found in texts.items()} == {
        "train": 30,
        "valid": 20,
        "test": 10,
    }
    assert len({tuple(found[:5]) for found in texts.values()}) == 3
    assert (
        source.texts("train") == texts["train"] != Associations(examples=30, seed=1).texts("train")
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 7},
        {"length": 0},
        {"tested": 3},
        {"keys": 0},
        {"keys": 27},
        {"values": 11},
        {"valid": 0},
    ],
)
def test_bad_numbers_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(
        UserError, match=f"config.data.{next(iter(wrong))}={next(iter(wrong.values()))} must be"
    ):
        Associations(**wrong)


def test_texts_of_the_test_split_may_be_longer() -> None:
    source = Associations(examples=3, length=6, tested=10)
    lengths = {split: {len(text.split()) for text in source.texts(split)} for split in SPLITS}
    assert lengths == {"train": {6}, "valid": {6}, "test": {10}}
