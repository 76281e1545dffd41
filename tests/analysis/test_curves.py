"""Pictures of curves."""

import pathlib

from attnlab.analysis.curves import save_curve
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
