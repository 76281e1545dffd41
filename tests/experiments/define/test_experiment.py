"""The words of an experiment file."""

import pytest

from attnlab.experiments import Claim, Contrast, Experiment, better
from attnlab.experiments.define.experiment import Mode
from tests.experiments.plans import EXPERIMENT, defined


def test_five_seeds_by_default() -> None:
    assert Experiment("Which?", EXPERIMENT.config, EXPERIMENT.compare).seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("mode", "sign"), [("max", 1.0), ("min", -1.0)])
def test_better_goes_the_way_of_the_measure(mode: Mode, sign: float) -> None:
    """A loss that is lower by 0.05 is better by 0.05; weights written out are taken as they are,
    whatever the measure.
    """
    raw = Contrast({"additive": 1.0, "general": -1.0}, 0.05)
    # of which less is better, whatever the measure
    cheaper = better("additive", "general", on="flops")
    claim = Claim("It is better.", (better("additive", "general", by=0.05), raw, cheaper))
    assert defined(claim=claim, measure=("score", mode))["claim"]["contrasts"] == [
        {"weights": {"additive": sign, "general": -sign}, "at_least": 0.05},
        {"weights": {"additive": 1.0, "general": -1.0}, "at_least": 0.05},
        {"weights": {"additive": -1.0, "general": 1.0}, "at_least": 0.0, "on": "flops"},
    ]
