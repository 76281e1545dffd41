"""The words of an experiment file."""

from __future__ import annotations

from attnlab.experiments import Contrast, better
from tests.experiments.plans import EXPERIMENT


def test_better_is_a_difference() -> None:
    assert better("a", "b", by=0.05) == Contrast({"a": 1.0, "b": -1.0}, at_least=0.05)
    assert better("a", "b").at_least == 0.0


def test_what_an_experiment_leaves_out() -> None:
    assert (EXPERIMENT.tune, EXPERIMENT.baseline, EXPERIMENT.budget, EXPERIMENT.search) == ((), "", None, None)
    assert EXPERIMENT.select == EXPERIMENT.measure == ("loss", "min")
