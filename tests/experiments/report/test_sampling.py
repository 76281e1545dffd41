"""Other test sets from the same examples: what is paired, what is left out, and the numbers by
hand.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.sampling import sampled, table
from attnlab.records.items import Items
from tests.experiments.report.tabled import compared
from tests.experiments.synthetic import sweep, workdir

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
    shown = table(compare(collect(tmp_path)), "a")
    assert shown is not None and shown.rows[0][:3] == ("b", "2", "+0.2500")
    assert "40 examples" in shown.notes[0]


def test_what_does_not_pair_is_left_out(tmp_path: Path) -> None:
    """Other numbers of examples, and other ones; no items at all; a measure that has none."""
    others = {"a": "t", "b": "t", "c": "u"}
    for name, changes in (("fewer", {"of_c": 39}), ("others", {"test_data": others})):
        assert set(sampled(compare(collect(made(tmp_path / name, **changes))), "a")) == {"b"}
    assert table(compared(tmp_path / "none", SCORES), "a") is None
    measure = {"metric": "bleu", "mode": "max"}
    assert sampled(compared(tmp_path / "other", SCORES, measure=measure), "a") == {}
