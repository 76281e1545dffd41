"""The budget solver on counts that are written down: nearest value, accepted values only, few
counts.
"""

import itertools
import math
from collections.abc import Callable

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan.budgets import solve


def counted(
    function: Callable[[int], float], accepted: int = 1
) -> tuple[Callable[[int], float], list[int]]:
    """A count that refuses what `accepted` does not divide, and the values it was asked for."""
    asked: list[int] = []

    def count(value: int) -> float:
        asked.append(value)
        if value % accepted:
            raise UserError(f"heads do not divide {value}")
        return function(value)

    return count, asked


FUNCTIONS: dict[str, Callable[[int], float]] = {
    "linear": lambda n: 1000 + 37 * n,
    "quadratic": lambda n: 5 * n * n + 300 * n + 20_000,
    "square": lambda n: n * n,
    "mostly constant": lambda n: 1_000_000 + 10 * n,
    "cubic": lambda n: n**3 + 1,
    "root": lambda n: 1000 * math.sqrt(n),
    "with jumps": lambda n: 1000 + 10 * n + 900 * (n // 64),
}


@pytest.mark.parametrize("accepted", [1, 4, 12])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_nearest_value_is_found_in_few_counts(name: str, accepted: int) -> None:
    function = FUNCTIONS[name]
    values = range(accepted, 5 * 2401, accepted)
    for start, target, share in itertools.product(
        (accepted, 96, 480), (accepted, 36, 96, 100, 960, 2401), (0.1, 0.8)
    ):
        wanted = function(target) + share * (function(target + accepted) - function(target))
        count, asked = counted(function, accepted)
        found = solve(count, start, wanted)
        best = min(values, key=lambda value: abs(function(value) - wanted))
        assert (found.value, found.reached) == (best, function(best)), (start, wanted, asked)
        assert len(asked) <= 30 and len(set(asked)) == len(asked), (start, wanted, asked)


@pytest.mark.quick
def test_sizes_take_a_handful_of_counts() -> None:
    """A width of a Transformer, heads of four, by parameters, three values refused; a hidden width,
    on which they depend as on a line.
    """
    count, asked = counted(lambda width: 12 * width * width + 8000 * width + 500, accepted=4)
    found = solve(count, 128, 12 * 90 * 90 + 8000 * 90 + 500)
    assert found.value in (88, 92) and found.note == "" and len(asked) <= 7, asked
    count, asked = counted(lambda hidden: 129 * hidden + 20_672)
    assert solve(count, 512, 30_650).value == 77 and len(asked) == 3, asked


def test_what_cannot_be_reached_is_the_nearest() -> None:
    count, _ = counted(lambda n: 1000 + n)
    assert (solve(count, 64, 10).value, solve(count, 64, 10).reached) == (1, 1001)


def test_a_knob_that_does_nothing() -> None:
    count, asked = counted(lambda n: 7)
    found = solve(count, 64, 10)
    assert (found.value, found.reached, found.note) == (64, 7, "it makes no difference")
    assert len(asked) <= 3


def test_a_knob_with_one_accepted_value_and_one_with_an_end() -> None:
    def only(value: int) -> float:
        if value != 6:
            raise UserError("must be 6")
        return 5.0

    assert solve(only, 6, 10).note == "no other value than 6 was accepted nearby"

    def at_most(value: int) -> float:
        if value > 10:
            raise UserError("at most 10")
        return float(value)

    found = solve(at_most, 4, 100)
    assert found.reached <= 10 and found.note == "at most 10"


def test_a_start_that_fits_is_kept() -> None:
    count, _ = counted(lambda n: 3 * n)
    assert solve(count, 64, 192).value == 64
