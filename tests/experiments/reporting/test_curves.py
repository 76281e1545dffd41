"""Learning curves: the points that are drawn, and a picture that fits a page."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree
from pathlib import Path

import pytest

from attnlab.experiments.reporting import curves
from attnlab.experiments.reporting.collect import collect
from attnlab.experiments.reporting.comparison import compare
from attnlab.experiments.reporting.curves import Line
from tests.experiments.synthetic import sweep

CURVES = [Line("a <b>", {1: (0.1, 0.2, 0.3), 2: (0.2, 0.3, 0.4)}, 3), Line("$x_1$", {1: (0.5, 0.5, 0.5)}, 1), Line("empty", {}, 0)]


@pytest.mark.quick
def test_points_are_the_mean_and_the_extremes_over_seeds(tmp_path: Path) -> None:
    """exact at step 9 is the final value - 0.3; a seed that diverged leaves the mean to the others from its end on."""
    comparison = compare(collect(sweep(tmp_path, {"a": (0.9, 0.8, 0.7), "b": (0.6, math.nan, 0.5)})))
    first, second = curves.lines(comparison, "valid", "exact")
    assert first.name == "a" and first.seeds == 3 and list(first.points) == [3, 6, 9, 12]
    assert first.points[9] == pytest.approx((0.4, 0.5, 0.6))
    assert second.seeds == 2 and second.points[12] == pytest.approx((0.5, 0.55, 0.6))
    train = curves.lines(comparison, "train", "loss")[1]
    assert train.seeds == 3 and list(train.points) == [3, 6, 9, 12]
    assert curves.metrics(comparison, ("loss", "exact", "bleu", "loss")) == ["loss", "exact"]
    assert not any(line.points for line in curves.lines(comparison, "valid", "bleu"))


@pytest.mark.quick
def test_a_picture_is_one_element_that_takes_the_colour_of_the_page() -> None:
    drawn = curves.draw(CURVES, "loss & <more>")
    root = xml.etree.ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg") and "width" not in root.attrib and "viewBox" in root.attrib
    assert root.attrib["aria-label"] == "loss & <more>"
    assert "currentColor" in drawn and "#0a0b0c" not in drawn and "metadata" not in drawn
    assert drawn.count(curves.COLOURS[0].lower()) >= 2 and curves.COLOURS[1].lower() in drawn


def test_equal_curves_are_equal_text_and_names_do_not_clash() -> None:
    one, again, other = (curves.draw(CURVES, title) for title in ("loss", "loss", "exact"))
    assert one == again
    names = [set(re.findall(r' id="([^"]*)"', text)) for text in (one, other)]
    assert names[0] and not names[0] & names[1]
    for text, known in zip((one, other), names, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= known


def test_more_rows_than_colours_are_told_apart_by_style() -> None:
    looks = [curves.colour(place) for place in range(4 * len(curves.COLOURS))]
    assert len(set(looks)) == len(looks)
