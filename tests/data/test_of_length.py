"""Pairs are chosen by the length of their source, both limits included."""

from __future__ import annotations

import dataclasses

import pytest

from attnlab.data import SPLITS
from attnlab.data.copying import Copying
from attnlab.data.of_length import OfLength
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class Lines:
    """One pair of 1, 2, ... 9 words, whose target is longer; none in the test split."""

    def pairs(self, split: str) -> list[tuple[str, str]]:
        return [("a\u00a0" + "b " * n, "c " * 30) for n in range(9)] if split != "test" else []


@pytest.mark.quick
def test_both_limits_belong_to_it_and_the_target_does_not_count() -> None:
    for split in ("train", "valid"):
        pairs = OfLength(Lines, 3, 5).pairs(split)
        assert [len(source.split()) for source, _ in pairs] == [3, 4, 5]
        assert pairs == Lines().pairs(split)[2:5]


def test_it_takes_any_source_by_its_node() -> None:
    node = {"name": "copying", "examples": 200, "longest": 12}
    every = {split: Copying(examples=200, longest=12).pairs(split) for split in SPLITS}
    parts = [OfLength(node, *limits).pairs("train") for limits in ((1, 6), (7, 12))]
    assert all(parts) and sorted(parts[0] + parts[1]) == sorted(every["train"])


@pytest.mark.parametrize(
    ("limits", "split", "words"),
    [
        ((0, 5), "train", "data.shortest=0 and .*longest=5: expected 1 <= shortest <= longest"),
        ((6, 5), "train", "shortest=6"),
        ((10, 12), "valid", "leave no pair of the valid split; its 9 pairs have 1 to 9 words"),
        ((1, 5), "test", "leave no pair of the test split; it is empty"),
    ],
)
def test_what_leaves_nothing_is_refused(limits: tuple[int, int], split: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        OfLength(Lines, *limits).pairs(split)
