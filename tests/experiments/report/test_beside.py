"""The tables beside the main one; of other test sets from the same examples, what is paired, what
is left out, and the numbers by hand.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.beside import measures, over_examples, sampled, validation
from attnlab.records.items import Items
from tests.experiments.report.tabled import compared
from tests.experiments.synthetic import sweep, workdir

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


SCORES = {"a": (0.5, 0.5), "b": (0.75, 0.75), "c": (0.75, 0.75)}


def made(directory: Path, of_c: int = 40, **changes: Any) -> Path:
    """A sweep whose trials have items, of 40 examples: a is right in every second one, b in three of
    four.
    """
    found = sweep(directory, SCORES, **changes)
    for variant, scores in SCORES.items():
        for seed, score in enumerate(scores):
            right = np.arange(of_c if variant == "c" else 40) % 4 < 4 * score
            rows = np.stack([right, np.ones(len(right))], 1)
            items = Items.of({"exact": ("ratio", rows), "loss": ("ratio", rows)})
            items.write(workdir(found, variant, seed))
    return found


@pytest.mark.quick
def test_differences_over_examples_are_those_of_binomial_draws(tmp_path: Path) -> None:
    """b is right where a is, and in one example of four more: the difference of a drawn test set is
    a mean of 40 draws of 0 and 1.
    """
    found = sampled(compare(collect(made(tmp_path))), "a")
    assert found["b"].difference == 0.25 and found["b"].items == 40 and set(found) == {"b", "c"}
    half = 1.96 * np.sqrt(0.25 * 0.75 / 40)
    assert found["b"].interval == pytest.approx((0.25 - half, 0.25 + half), abs=0.04)
    # ten examples differ: all of them must go one way
    assert found["b"].p == pytest.approx(2 * 0.5**10, abs=0.01)
    shown = over_examples(compare(collect(tmp_path)), "a")
    assert shown is not None and shown.rows[0][:3] == ("b", "2", "+0.2500")
    assert "40 examples" in shown.notes[0]


def test_what_does_not_pair_is_left_out(tmp_path: Path) -> None:
    """Other numbers of examples, and other ones; no items at all; a measure that has none."""
    others = {"a": "t", "b": "t", "c": "u"}
    for name, changes in (("fewer", {"of_c": 39}), ("others", {"test_data": others})):
        assert set(sampled(compare(collect(made(tmp_path / name, **changes))), "a")) == {"b"}
    assert over_examples(compared(tmp_path / "none", SCORES), "a") is None
    measure = {"metric": "bleu", "mode": "max"}
    assert sampled(compared(tmp_path / "other", SCORES, measure=measure), "a") == {}
