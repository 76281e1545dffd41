"""Joining pairs: nothing is lost, sides stay together, other splits stay alone."""

from __future__ import annotations

import dataclasses

import pytest

from attnlab.data.joined import Joined
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Pairs ("a5", "b5") ..., 100 of them."""

    def pairs(self, split: str) -> list[tuple[str, str]]:
        return [(f"a{n}", f"b{n}") for n in range(100)]


@pytest.mark.quick
def test_every_pair_occurs_as_often_as_asked_and_sides_stay_together() -> None:
    pairs = Joined(Numbers, most=3, copies=2).pairs("train")
    assert all(source.replace("a", "b") == target for source, target in pairs)
    words = [word for source, _ in pairs for word in source.split()]
    assert sorted(words) == sorted(2 * [f"a{n}" for n in range(100)])
    assert words[:100] != words[100:] and words[:100] != sorted(words[:100])
    lengths = [len(source.split()) for source, _ in pairs]
    assert set(lengths) == {1, 2, 3} and all(lengths.count(n) > 20 for n in (1, 2, 3))


def test_the_seed_decides_and_evaluation_is_left_alone() -> None:
    assert Joined(Numbers).pairs("train") == Joined(Numbers).pairs("train")
    assert Joined(Numbers, seed=1).pairs("train") != Joined(Numbers).pairs("train")
    for split in ("valid", "test"):
        assert Joined(Numbers).pairs(split) == Numbers().pairs(split)
    assert sorted(Joined(Numbers, most=1).pairs("train")) == sorted(Numbers().pairs("train"))


@pytest.mark.parametrize("wrong", [{"most": 0}, {"copies": 0}])
def test_impossible_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match="at least 1"):
        Joined(Numbers, **wrong).pairs("train")
