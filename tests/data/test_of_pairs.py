"""Pairs of another source: nothing is lost or changed but what is asked for."""

import dataclasses
from typing import Any

import pytest

from attnlab.data import SOURCES, SPLITS
from attnlab.data.generated_pairs import Copying
from attnlab.data.of_pairs import InARow, Joined, OfLength, OneSide, Prefixed
from tests.refusals import check_refused

SIZES = {"examples": 5, "valid": 3, "test": 2}


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Pairs ("a5", "b5") ..., 100 of them."""

    def pairs(self, split: str) -> list[tuple[str, str]]:
        return [(f"a{n}", f"b{n}") for n in range(100)]


@dataclasses.dataclass(frozen=True)
class Lines:
    """One pair of 1, 2, ... 9 words, whose target is longer; none in the test split."""

    def pairs(self, split: str) -> list[tuple[str, str]]:
        return [("a\u00a0" + "b " * n, "c " * 30) for n in range(9)] if split != "test" else []


def test_a_side_in_its_order_and_a_prefix_before_every_source() -> None:
    node = {"name": "grammar", **SIZES}
    for split in SPLITS:
        plain = SOURCES.resolve("grammar")(**SIZES).pairs(split)
        for side, number in (("source", 0), ("target", 1)):
            actual = SOURCES.resolve("one_side")(node, side).texts(split)
            assert actual == [pair[number] for pair in plain]
        expected = [(f"say: {source}", target) for source, target in plain]
        assert SOURCES.resolve("prefixed")(node, "say: ").pairs(split) == expected


@pytest.mark.quick
def test_every_pair_occurs_as_often_as_asked_and_sides_stay_together() -> None:
    pairs = Joined(Numbers, most=3, copies=2).pairs("train")
    assert all(source.replace("a", "b") == target for source, target in pairs)
    words = [word for source, _ in pairs for word in source.split()]
    assert sorted(words) == sorted(2 * [f"a{n}" for n in range(100)])
    assert words[:100] != words[100:] and words[:100] != sorted(words[:100])
    lengths = [len(source.split()) for source, _ in pairs]
    assert set(lengths) == {1, 2, 3} and all(lengths.count(n) > 20 for n in (1, 2, 3))
    assert Joined(Numbers).pairs("train") == Joined(Numbers).pairs("train")
    assert Joined(Numbers, seed=1).pairs("train") != Joined(Numbers).pairs("train")
    for split in ("valid", "test"):
        assert Joined(Numbers).pairs(split) == Numbers().pairs(split)


@pytest.mark.quick
def test_both_limits_belong_to_a_length_and_the_target_does_not_count() -> None:
    for split in ("train", "valid"):
        assert OfLength(Lines, 3, 5).pairs(split) == Lines().pairs(split)[2:5]
    node = {"name": "copying", "examples": 200, "longest": 12}
    parts = [OfLength(node, *limits).pairs("train") for limits in ((1, 6), (7, 12))]
    every = Copying(examples=200, longest=12).pairs("train")
    assert all(parts) and sorted(parts[0] + parts[1]) == sorted(every)


def test_a_pair_in_a_row_asks_for_every_word_of_its_target_and_its_end() -> None:
    of = {"name": "copying", "examples": 20, "order": "reversed", "longest": 6}
    rows, pairs = InARow(of).asked("train"), Copying(20, order="reversed", longest=6).pairs("train")
    for row, (source, target) in zip(rows, pairs, strict=True):
        length = len(source.split())
        assert row.words == (*source.split(), "=", *target.split())
        message = [answer for answer in row.answers if answer]
        assert message == [*target.split(), "."] and row.answers[:length] == ("",) * length
        # each answer but the last is the next word: greedy generation would read the same
        assert tuple(message[:-1]) == row.words[length + 1 :]
        assert row.groups == (length,) * (length + 1)


@pytest.mark.parametrize(
    ("source", "split", "words"),
    [
        (Joined(Numbers, most=0), "train", "most=0 and config.data.copies=1 must be at least 1"),
        (Joined(Numbers, copies=0), "train", "at least 1"),
        (Joined(Numbers, copies=10**6), "train", "copies=1000000 of 100 pairs are more than 10,0"),
        (OfLength(Lines, 0, 5), "train", "shortest=0 and .*longest=5: expected 1 <= shortest <="),
        (OfLength(Lines, 6, 5), "train", "shortest=6"),
        (OfLength(Lines, 10, 12), "valid", "leave no pair of the valid split; its 9 pairs have 1"),
        (OfLength(Lines, 1, 5), "test", "leave no pair of the test split; it is empty"),
        (Prefixed("associations"), "train", "Associations has no pairs.split. whose sources could"),
        (Joined("associations"), "train", "Associations has no pairs.split. that could be joined"),
    ],
)
def test_what_cannot_be_is_refused(source: Any, split: str, words: str) -> None:
    check_refused(words, source.pairs, split)
    words = "Associations has no pairs.split. of which one side"
    check_refused(words, OneSide("associations").texts, "train")
    words = "Associations has no pairs.split. that could stand in one row"
    check_refused(words, InARow("associations").asked, "train")
