"""Measured costs: exponents, crossings, the table, the files and the picture."""

import csv
import json
import math
from pathlib import Path

import pytest

from attnlab.analysis import costs
from attnlab.analysis.costs import NEVER, Point

LENGTHS = (256, 1024, 2048, 4096, 8192)


def points(name: str, factor: float, power: float) -> list[Point]:
    return [
        Point(name, length, 7, 8 * length, seconds=factor * length**power, bytes=4 * length)
        for length in LENGTHS
    ]


@pytest.mark.quick
def test_the_exponent_is_that_of_a_power_law_at_great_lengths() -> None:
    found = points("x", 3e-6, 1.3)
    found[0] = found[0]._replace(seconds=5.0)  # a short text does not count
    assert costs.exponent(found) == pytest.approx(1.3)
    assert costs.exponent(found, "bytes") == pytest.approx(1.0)
    assert math.isnan(costs.exponent(found[:3]))
    gone = [one._replace(seconds=math.nan) if one.length == 8192 else one for one in found]
    assert costs.exponent(gone) == pytest.approx(1.3)


def test_a_crossing_holds_up_to_the_end() -> None:
    exact, linear = points("exact", 1e-9, 2.0), points("linear", 3e-6, 1.0)
    assert costs.crossing(linear, exact) == 4096
    assert costs.crossing(exact, linear) is None
    assert costs.crossing(linear, exact, "bytes") is None  # equal is not less
    once = [one._replace(seconds=1e-9) if one.length == 256 else one for one in exact]
    assert costs.crossing(once, linear) is None  # less for short texts only
    shorter = [one._replace(seconds=math.nan) if one.length > 4096 else one for one in exact]
    assert costs.crossing(linear, shorter) == 4096


def test_table_files_and_picture(tmp_path: Path) -> None:
    every = {"exact": points("exact", 1e-9, 2.0), "linear": points("linear", 3e-6, 1.0)}
    every["large"] = [Point("large", 256, why="its program takes 9.0 GB")]
    cards = {"linear": {"time": "T d^2", "path": "1", "steps": "T / C"}}
    exact, linear, large = costs.rows(every, "exact", cards)
    assert len(linear) == len(costs.COLUMNS) and exact[-2:] == ["", ""]
    assert linear[:6] == ["linear", 7, "T d^2", "", "1", "T / C"]
    assert linear[-2:] == ["4,096", NEVER]
    assert linear[6] == 8192 and linear[7] == pytest.approx(24.576) and linear[9] == 64.0
    assert large[-2:] == [NEVER, NEVER] and math.isnan(large[7])
    files = costs.write(every, {"title": "a title", "width": 64}, tmp_path / "new")
    assert [file.name for file in files] == ["costs.csv", "costs.json", "costs.png"]
    written = list(csv.DictReader(files[0].open()))
    assert len(written) == 11 and written[0]["seconds"] == str(1e-9 * 256**2)
    record = json.loads(files[1].read_text())
    assert record["width"] == 64 and record["points"][-1]["seconds"] is None
    assert files[2].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
