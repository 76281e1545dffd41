"""Small things that all generators share."""

from __future__ import annotations

import random

import pytest

from attnlab.data.asked import Row
from attnlab.data.diagnostics.drawing import apart, below, power_of_two
from attnlab.data.generated import split_of, within
from attnlab.errors import UserError


def test_rows_of_a_split_are_those_whose_hash_says_so() -> None:
    numbers = iter(range(10**6))
    rows = apart(lambda: Row((str(next(numbers)),), ("a",)), "valid", 10)
    every = [str(number) for number in range(int(rows[-1].words[0]) + 1)]
    assert [row.words[0] for row in rows] == [one for one in every if split_of(one) == "valid"]
    with pytest.raises(UserError, match="gave 0 texts of the test split; 2 are wanted"):
        apart(lambda: rows[0], "test", 2)


def test_limits_powers_and_draws() -> None:
    assert [power_of_two(number) for number in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]
    assert {below(random.Random(seed), 3) for seed in range(50)} == {0, 1, 2}
    within("x", 3, 3, 3)
    with pytest.raises(UserError, match=r"config.data.x=4 must be in 1 \.\.\. 3"):
        within("x", 4, 1, 3)
