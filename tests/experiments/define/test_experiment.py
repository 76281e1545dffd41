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
    contrast = Contrast({"additive": 1.0, "general": -1.0}, 0.05)
    claim = Claim("It is better.", (better("additive", "general", by=0.05), contrast))
    one, raw = defined(claim=claim, measure=("score", mode))["claim"]["contrasts"]
    assert one == {"weights": {"additive": sign, "general": -sign}, "at_least": 0.05}
    assert raw == {"weights": {"additive": 1.0, "general": -1.0}, "at_least": 0.05}
    assert better("a", "b").at_least == 0.0
    # of which less is better, whatever the measure
    faster = better("a", "b", by=2.0, on="step_seconds").literal(mode)
    assert faster == Contrast({"a": -1.0, "b": 1.0}, 2.0, on="step_seconds")
