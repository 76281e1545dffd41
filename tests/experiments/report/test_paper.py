"""`report.tex`: three columns that go into a paper, or those that are asked for."""

import re
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.paper import paper
from attnlab.pages.formats import latex
from tests.experiments.report.tabled import main
from tests.experiments.synthetic import SCORES, sweep


@pytest.mark.quick
def test_three_columns(tmp_path: Path) -> None:
    """Mean with its interval, difference with its p; the baseline has none; nothing is said of
    costs that are not shown.
    """
    contents = gather(sweep(tmp_path))
    table = paper(contents.records, contents.comparison)
    assert table.columns == ("variant", "exact", "difference to additive")
    base, _, worst = table.rows
    assert base == ("additive", "0.9250 [0.9005, 0.9495]", "-")
    assert re.fullmatch(r"-0\.5000 \(p < 0\.001\)", worst[2]) and worst[1].startswith("0.4250 [")
    notes = " ".join(table.notes)
    assert "Intervals: 95 %" in notes and "adjusted" in notes and "FLOPs" not in notes
    assert "Budgets" not in notes
    lines = latex(table).splitlines()
    assert r"\begin{tabular}{lrr}" in lines
    assert all(line.count(" & ") == 2 and line.endswith(r" \\") for line in lines if " & " in line)
    assert r"location & 0.4250 {[}0.3871, 0.4629] & $-$0.5000 (p $<$ 0.001) \\" in lines


def test_before_the_choice(tmp_path: Path) -> None:
    contents = gather(sweep(tmp_path, final=False))
    assert paper(contents.records, contents.comparison).columns == ("variant", "loss")


def test_columns_by_name(tmp_path: Path) -> None:
    contents = gather(sweep(tmp_path))
    table = paper(contents.records, contents.comparison, ("variant", "mean", "parameters"))
    assert table.columns == ("variant", "mean", "parameters")
    assert table.rows[0] == ("additive", "0.9250", "12,353")
    assert any("FLOPs" in note for note in table.notes)
    whole = main(contents)
    assert paper(contents.records, contents.comparison, whole.columns) == whole


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("variant", "meen"), "no column 'meen'; did you mean 'mean'"),
        (("",), "no column ''; choose from: 95 % interval, FLOPs per step"),
    ],
)
def test_a_column_that_is_not_there(tmp_path: Path, columns: tuple[str, ...], words: str) -> None:
    contents = gather(sweep(tmp_path, SCORES))
    with pytest.raises(UserError) as caught:
        paper(contents.records, contents.comparison, columns)
    assert words in str(caught.value) and str(caught.value).startswith("--columns: ")
