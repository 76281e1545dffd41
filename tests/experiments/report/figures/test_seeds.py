"""A strip of dots for every row."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.figures import seeds
from attnlab.experiments.report.figures.colours import looks
from attnlab.pages.html import Figure
from tests.experiments.report.tabled import compared, drawn
from tests.experiments.report.test_effects import made


def strips(directory: Path, scores: dict[str, tuple[float, ...]]) -> Figure | None:
    comparison = compared(directory, scores, claim=None)
    return seeds.seeds(comparison, looks(comparison, next(iter(scores))))


@pytest.mark.quick
def test_the_best_comes_first_and_every_seed_has_its_dot(tmp_path: Path) -> None:
    text = drawn(strips(tmp_path, {"a <b>": (0.5, 0.6, 0.55), "b": (0.9, 0.8, math.nan)}))
    rows = re.findall(r"<tr data-row.*?</tr>", text)
    assert [row[14] for row in rows] == ["1", "0"] and "a &lt;b&gt; (baseline)" in rows[1]
    assert "1 missing" in rows[0]
    assert [row.count("<circle") for row in rows] == [2, 3]
    assert "<title>seed 1: 0.6000</title>" in rows[1]
    assert 'title="seed 2 diverged"' in rows[0]
    assert "The dashed line is the mean of the baseline." in text
    left, right = (float(one) for one in re.findall(r'cx="([\d.]+)%"', rows[0]))
    assert 0 <= right < left <= 100


def test_an_interval_beyond_the_picture_is_cut_and_has_no_end(tmp_path: Path) -> None:
    """The axis goes as far beyond the seeds as they lie apart."""
    comparison = compared(tmp_path, {"a": (0.5, 0.6), "b": (0.549, 0.551)}, claim=None)
    ends = ((-0.1, 1.2), (0.54, 0.56))
    rows = [
        dataclasses.replace(row, summary=dataclasses.replace(row.summary, interval=one))
        for row, one in zip(comparison.rows, ends, strict=True)
    ]
    shown = dataclasses.replace(comparison, rows=tuple(rows))
    text = drawn(seeds.seeds(shown, looks(comparison, "a")))
    rows = re.findall(r"<tr data-row.*?</tr>", text)
    thin = r'class="thin" x1="([-\d.]+)%" x2="([-\d.]+)%"'
    by_row = {row[14]: re.findall(thin, row) for row in rows}
    assert by_row["0"] == [("0.00", "100.00")] and len(by_row["1"]) == 3
    ends = [float(end) for pairs in by_row.values() for pair in pairs for end in pair]
    assert 0 <= min(ends) <= max(ends) <= 100


def test_nothing_to_show_is_no_section(tmp_path: Path) -> None:
    assert strips(tmp_path / "none", {"a": (math.nan,), "b": (math.nan,)}) is None
    text = drawn(strips(tmp_path / "one", {"a": (0.5,), "b": (math.nan,)}))
    assert text.count("<circle") == 1 and text.count("<tr data-row") == 1
    assert "Without a number: b (seed 0 diverged)." in text


def test_each_effect_has_its_strip_with_a_line_where_none_would_be(tmp_path: Path) -> None:
    made(tmp_path)
    contents = gather(tmp_path)
    text = drawn(seeds.strips(contents.effects, contents.comparison))
    rows = re.findall(r"<tr data-row.*?</tr>", text)
    assert len(rows) == 3 and 'aria-label="norm=none: -0.1738"' in rows[0]
    assert all('class="strip c0"' in row and 'class="front"' in row for row in rows)
    gap = contents.effects[0].difference
    assert gap is not None
    better = dataclasses.replace(gap, mean=-gap.mean, interval=None)
    effect = dataclasses.replace(contents.effects[0], difference=better)
    assert ">+0.1738<" in drawn(seeds.strips([effect], contents.comparison))
    assert seeds.strips((), contents.comparison) is None
