"""Pictures of curves."""

import pathlib
import re
from typing import Any

import pytest

from attnlab.analysis.curves import save_costs, save_curve
from tests.analysis.test_maps import count, pixels

BLUE = (0x1F / 255, 0x77 / 255, 0xB4 / 255)


def test_a_curve_is_drawn_with_every_series(tmp_path: pathlib.Path) -> None:
    series = {
        "train $\\frac{$": [(i, 5 / (1 + i)) for i in range(50)],
        "_valid": [(0, 5.0), (40, float("nan")), (49, 1.0)],
        "empty": [],
    }
    save_curve(tmp_path / "loss.png", series, "run_1 $\\frac{$")
    save_curve(tmp_path / "nothing.png", {})
    picture = pixels(tmp_path / "loss.png")
    assert count(picture, BLUE) > 300
    assert (tmp_path / "nothing.png").stat().st_size > 1000


def test_bars_reach_from_the_lower_to_the_upper_end(tmp_path: pathlib.Path) -> None:
    """Rows that hold the colour of the line: many more with a long bar than with none."""
    points = {"one": [(1.0, 0.5), (2.0, 0.5), (8.0, 0.5)]}
    save_curve(tmp_path / "none.png", points, doubling=True)
    bars = {"one": [(0.5, 0.5), (0.0, 1.0), (0.5, 0.5)]}
    save_curve(tmp_path / "bars.png", points, bars=bars, doubling=True)
    plain, barred = (pixels(tmp_path / f"{name}.png") for name in ("none", "bars"))
    # blue, a half-transparent bar included
    rows = [
        (picture[..., 2] - picture[..., 0] > 0.2).any(axis=1).sum() for picture in (plain, barred)
    ]
    assert rows[1] > 5 * rows[0]


def records(*rows: tuple[str, int | None, str, float]) -> list[dict[str, Any]]:
    """Costs of parts, as a table of ablations has them."""
    return [dict(zip(("place", "head", "kind", "cost"), row, strict=True)) for row in rows]


def texts_of(picture: pathlib.Path) -> str:
    """The texts of an SVG, in their order."""
    return " ".join(re.findall("<!-- (.*?) -->", picture.read_text()))


def test_costs_of_heads_are_cells_with_their_numbers(tmp_path: pathlib.Path) -> None:
    """Layers may have other numbers of heads; the scale is that of heads, whatever a layer costs."""
    costs = records(
        ("first/attention/heads", 0, "zero", 0.25),
        ("first/attention/heads", 0, "mean", 77.0),
        ("first/attention/layer", None, "zero", 33.0),
        ("second/attention/heads", 0, "zero", 0.0),
        ("second/attention/heads", 1, "zero", -0.25),
    )
    save_costs(tmp_path / "costs.svg", costs, title="costs")
    numbers = "0.25 33.00 0.00 -0.25"
    expected = f"0 1 layer first/attention second/attention {numbers} costs"
    assert texts_of(tmp_path / "costs.svg") == expected
    save_costs(tmp_path / "costs.png", costs)
    picture = pixels(tmp_path / "costs.png")
    dark_red, dark_blue = (0x67 / 255, 0, 0x1F / 255), (0x05 / 255, 0x30 / 255, 0x61 / 255)
    assert 1.7 < count(picture, dark_blue) / count(picture, dark_red) < 2.3
    with pytest.raises(ValueError, match="no record is of the kind 'uniform'"):
        save_costs(tmp_path / "none.png", costs, "uniform")


def test_costs_that_are_infinite_have_no_number_and_tiny_ones_few_digits(
    tmp_path: pathlib.Path,
) -> None:
    costs = records(
        ("first/heads", 0, "zero", float("inf")),
        ("first/heads", 1, "zero", 3e-9),
        ("first/layer", None, "zero", 1.5),
    )
    save_costs(tmp_path / "costs.svg", costs)
    assert texts_of(tmp_path / "costs.svg") == "0 1 layer first 0.0000 1.5000"
