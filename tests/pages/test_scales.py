"""Axes: places, logarithms and ticks."""

import math

import pytest

from attnlab.pages.scales import Scale


@pytest.mark.quick
def test_every_value_has_its_place_within_the_axis() -> None:
    scale = Scale.over([2.0, 4.0], 0.0, 100.0)
    assert not scale.log and 0 < scale(2.0) < scale(3.0) < scale(4.0) < 100
    assert scale(3.0) == pytest.approx(50)
    upwards = Scale.over([2.0, 4.0], 100.0, 0.0)
    assert upwards(4.0) < upwards(2.0) and upwards.clipped(1e9) == 0
    assert upwards.clipped(-1e9) == pytest.approx(100)


def test_an_axis_is_logarithmic_where_the_range_asks_for_it_and_can_be() -> None:
    for low, high, asked in (
        (1.0, 19.0, None),
        (0.0, 20.0, None),
        (-1.0, 20.0, True),
        (1.0, 1e6, False),
    ):
        assert not Scale.over([low, high], 0.0, 1.0, log=asked).log
    for low, high, asked in ((1.0, 20.0, None), (1.0, 2.0, True)):
        scale = Scale.over([low, high], 0.0, 1.0, log=asked)
        assert scale.log and scale(math.sqrt(low * high)) == pytest.approx(0.5)


TICKS = [
    (0.0, 1.0, False, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    (-0.031, 0.018, False, ["-0.03", "-0.02", "-0.01", "0", "0.01"]),
    (100_001.0, 100_009.0, False, ["100.002 k", "100.004 k", "100.006 k", "100.008 k"]),
    (1.0, 100.0, True, ["1", "3", "10", "30", "100"]),
    (1e-5, 2.0, True, ["1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]),
    (2e3, 3e6, True, ["10 k", "100 k", "1 M"]),
    (1e9, 1.6e9, True, ["1.0 G", "1.1 G", "1.2 G", "1.3 G", "1.4 G", "1.5 G", "1.6 G"]),
    (1.0, 1e12, True, ["1", "1,000", "1 M", "1 G", "1 T"]),
]


@pytest.mark.quick
@pytest.mark.parametrize(("low", "high", "log", "texts"), TICKS)
def test_ticks_are_round_and_told_apart(
    low: float, high: float, log: bool, texts: list[str]
) -> None:
    ticks = Scale(low, high, 0.0, 1.0, log).ticks(7 if high == 1.6e9 else 6)
    assert [text for _, text in ticks] == texts
    within = [low <= value * (1 + 1e-9) <= high * (1 + 1e-9) ** 2 for value, _ in ticks]
    assert all(
        inside or abs(value) < 1e-9 for inside, (value, _) in zip(within, ticks, strict=True)
    )


def test_equal_or_no_values_have_an_axis_too() -> None:
    for values in ([], [0.0], [5.0], [-3.0, -3.0]):
        for log in (None, True):
            scale = Scale.over(values, 0.0, 1.0, log=log)
            assert scale.low < scale.high and len(scale.ticks()) >= 2
            assert all(0 <= scale(value) <= 1 for value in values)
