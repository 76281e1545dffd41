"""The tables beside the main one."""

import re
from pathlib import Path

import pytest

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.beside import measures, validation
from tests.experiments.report.tabled import compared
from tests.experiments.synthetic import sweep

LOSSES = ("loss, validation", "loss, test", "test - validation")


@pytest.mark.quick
def test_every_measure_of_the_test_split_and_no_bookkeeping(tmp_path: Path) -> None:
    """The main one first; "step" of `results.json` is none."""
    table = measures(compared(tmp_path, {"a": (0.9, 0.8), "b": (0.7, 0.5)}))
    assert table is not None and table.columns == ("variant", "exact", "loss")
    assert re.fullmatch(r"0.8500 \[.*, .*\]", table.rows[0][1])
    assert table.rows[0][2].startswith("1.200 [")
    assert "Only exact is tested" in table.notes[0]
    assert table.title == "All 2 measures on the test split"


@pytest.mark.quick
def test_validation_stands_beside_test_with_the_settings_that_were_chosen(tmp_path: Path) -> None:
    """On validation the loss is 0.05 lower and exact 0.01 lower, see `synthetic`."""
    scores = {"a": (0.9, 0.8), "b": (0.7, 0.5)}
    records = collect(sweep(tmp_path, scores, tuned={0.001: 0.5, 0.003: 0.0}))
    table = validation(records, compare(records))
    assert table is not None and table.columns[:5] == ("variant", "chosen settings", *LOSSES)
    assert table.rows[0][:5] == ("a", "peak=0.003", "1.150", "1.200", "+0.05000")
    assert table.rows[0][5:] == ("0.8400", "0.8500", "+0.01000")
    assert "lowest loss" in table.notes[0]


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    """Nothing tuned: no settings; a measure that validation does not know has only its test
    score.
    """
    measure = {"metric": "bleu", "mode": "max"}
    directory = sweep(tmp_path, {"a": (0.9,), "b": (0.7,)}, measure=measure)
    for place in directory.glob("trials/*/*/results.json"):
        place.write_text(place.read_text().replace('"exact"', '"bleu"'))
    records = collect(directory)
    table = validation(records, compare(records))
    assert table is not None and table.columns == ("variant", *LOSSES, "bleu, test")
    assert table.numbers == {1, 2, 3, 4}


def test_before_the_test_split_is_read_there_is_neither(tmp_path: Path) -> None:
    records = collect(sweep(tmp_path, final=False))
    assert measures(compare(records)) is None and validation(records, compare(records)) is None
