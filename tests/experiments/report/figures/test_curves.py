"""Learning curves: the points that are drawn, and a picture that fits a page."""

import dataclasses
import itertools
import math
import re
import xml.etree.ElementTree
from pathlib import Path

import pytest

from attnlab.experiments.report.collect import Logged, collect
from attnlab.experiments.report.comparison import Row, compare
from attnlab.experiments.report.figures import curves
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.curves import Line
from attnlab.pages.svg import Look
from tests.experiments.report.tabled import compared, drawn
from tests.experiments.synthetic import sweep

CURVES = [
    Line("a <b>", {1: (0.1, 0.2, 0.3), 2: (0.2, 0.3, 0.4)}, 3),
    Line("$x_1$", {1: (0.5, 0.5, 0.5)}, 1),
    Line("empty", {}, 0),
]


@pytest.mark.quick
def test_points_are_the_mean_and_the_extremes_over_seeds(tmp_path: Path) -> None:
    """exact at step 9 is the final value - 0.3; a seed that diverged leaves the mean to the others
    from its end on.
    """
    comparison = compared(tmp_path, {"a": (0.9, 0.8, 0.7), "b": (0.6, math.nan, 0.5)})
    first, second = curves.lines(comparison, "valid", "exact")
    assert first.name == "a" and first.seeds == 3 and list(first.points) == [3, 6, 9, 12]
    assert first.points[9] == pytest.approx((0.4, 0.5, 0.6))
    assert second.seeds == 2 and second.points[12] == pytest.approx((0.5, 0.55, 0.6))
    train = curves.lines(comparison, "train", "loss")[1]
    assert train.seeds == 3 and list(train.points) == [3, 6, 9, 12]
    assert curves.metrics(comparison, ("loss", "exact", "bleu", "loss")) == ["loss", "exact"]
    assert not any(line.points for line in curves.lines(comparison, "valid", "bleu"))


@pytest.mark.quick
def test_few_lines_are_named_and_many_have_the_first_in_colour() -> None:
    """Of 50 lines the first of the ranking and the baseline stand out; all are there, and say their
    name under the pointer.
    """
    looks = [Look(place, line.name, f"c{place}") for place, line in enumerate(CURVES)]
    few = curves.draw(CURVES, "loss & <more>", looks, [0, 1, 2])
    root = xml.etree.ElementTree.fromstring(few)
    assert root.attrib["aria-label"] == "loss & <more>" and "width" not in root.attrib
    expected = {"a <b>", "$x_1$"}
    assert {one.text for one in root.iter("text") if one.get("class") == "label"} == expected
    points = [dict.fromkeys((1, 2, 3), (place, place, place + 1.0)) for place in range(50)]
    lines = [Line(f"line {place}", each, 2) for place, each in enumerate(points)]
    kinds = {7: "c0", 9: "base"}
    styles = [Look(place, f"line {place}", kinds.get(place, "other")) for place in range(50)]
    many = curves.draw(lines, "loss", styles, [7, *(place for place in range(50) if place != 7)])
    assert many.count("<title>line ") == 50 and 'class="label"' not in many
    assert many.count('class="band"') == 2
    assert many.rindex("<title>line 7<") > max(
        many.index(f"<title>line {place}<") for place in range(50) if place != 7
    )  # it lies on top
    assert len(many) < 12_000


def test_a_row_that_was_recorded_once_says_how_to_get_a_line(tmp_path: Path) -> None:
    directory = sweep(tmp_path)
    for last in (12, 3):
        records = collect(directory)
        for record in records.trials:
            kept = [point for point in record.logged.curve if point["step"] <= last]
            logged = dataclasses.replace(record.logged, curve=kept)
            object.__setattr__(record, "logged", logged)
        comparison = compare(records)
        figure = curves.curves(records, comparison, looks(comparison, records.plan.baseline))
        assert figure is not None
        assert any("training.log_every" in note for note in figure.notes) is (last == 3)


def test_a_wide_range_has_a_logarithmic_axis_and_long_lines_are_thinned() -> None:
    line = Line("x", {step: (10.0 ** (-step / 250),) * 3 for step in range(1, 1001)}, 1)
    text = curves.draw([line], "loss", [Look(0, "x", "c0")], [0])
    assert ">0.001</text>" in text and ">0.1</text>" in text and text.count("L") < curves.MOST + 5
    (path,) = re.findall(r'class="line" d="([^"]*)"', text)
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", path)]
    steps = [after - before for before, after in itertools.pairwise(heights)]
    assert max(steps) - min(steps) < 0.6  # straight: the loss falls by equal ratios


def test_time_and_operations_take_the_place_of_steps_where_rows_differ(tmp_path: Path) -> None:
    """Steps of seed 0 take 11 ms until the third, then 10; those of seed 1 twice that from
    there.
    """
    records = collect(sweep(tmp_path, {"a": (0.9, 0.8), "b": (0.6, 0.5)}))
    comparison = compare(records)
    first, second = comparison.rows[0].records
    assert curves.seconds_at(first, [0, 3, 6, 9]) == pytest.approx([0, 0.033, 0.063, 0.093])
    assert curves.seconds_at(second, [1.5, 12]) == pytest.approx([0.0315, 0.063 + 9 * 0.02])
    assert curves.seconds_at(dataclasses.replace(first, logged=Logged((), {}, ())), [3]) == []
    styles = looks(comparison, "a")

    def curved(*rows: Row) -> str:
        return drawn(curves.curves(records, dataclasses.replace(comparison, rows=rows), styles))

    text = curved(*comparison.rows)
    # equal for all
    assert "validation exact by seconds" in text and "validation exact by FLOPs" not in text
    assert text.count("<figure>") == 4 and "has no curve" not in text
    base, row = comparison.rows
    near, wide = (
        dataclasses.replace(row, candidate=dataclasses.replace(row.candidate, flops=flops))
        for flops in (2.6e9, 5e9)
    )
    assert "by FLOPs" not in curved(base, near)
    text = curved(base, wide)
    assert "validation exact by FLOPs" in text and ">60 G</text>" in text  # 12 steps of 5 G
