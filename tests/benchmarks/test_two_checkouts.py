"""Comparing the speed of two checkouts."""

from itertools import pairwise
from typing import ClassVar

import pytest

from attnlab.errors import UserError
from benchmarks import two_checkouts


class Served:
    """A checkout whose runs take what its folder says, and compute it."""

    started = 0
    asked: "ClassVar[list[Served]]" = []

    def __init__(self, folder: str) -> None:
        Served.started += 1
        self.seconds, self.result = map(float, folder.split())

    def ask(self, name: str) -> tuple[float, float]:
        Served.asked.append(self)
        return self.seconds, self.result

    def close(self) -> None:
        Served.started -= 1


def test_a_row_has_the_least_of_both_and_their_ratios_round_by_round() -> None:
    found = two_checkouts.row("a", [[0.2, 0.1, 0.4], [0.4, 0.3, 0.4], [0.1, 0.1, 0.4]])
    assert found == ("a", "100", "300", "3.000", "2.000", "1.000", "1.000", 3)


def test_all_take_turns_none_twice_in_a_row_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_checkouts, "Checkout", Served)
    monkeypatch.setattr(Served, "asked", [])
    found = two_checkouts.measured(["1 5", "2 5.0001", "1 5"], "a", 7, 60.0)
    assert found == [[1.0] * 7, [2.0] * 7, [1.0] * 7]
    assert Served.started == 0
    assert len(Served.asked) == 3 + 3 * 7
    assert all(one is not other for one, other in pairwise(Served.asked))


def test_checkouts_that_compute_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_checkouts, "Checkout", Served)
    with pytest.raises(UserError, match="a: 5.0 was computed before, 6.0 after"):
        two_checkouts.measured(["1 5", "1 6", "1 5"], "a", 7, 60.0)
    assert Served.started == 0
