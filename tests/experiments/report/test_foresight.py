"""What a plan can find, said before anything is trained."""

import pytest

from attnlab.experiments.report.foresight import foresight
from attnlab.experiments.report.statistics import chance_to_find
from tests.experiments import plans


@pytest.mark.quick
def test_seeds_and_variants_say_what_can_be_found() -> None:
    """The figure is the one at which the test finds four of five; more seeds find less; one seed
    finds nothing.
    """
    said = {seeds: foresight(plans.plan(seeds=tuple(range(seeds)))) for seeds in (1, 3, 5)}
    assert said[1].startswith("one seed tells nothing")
    assert said[3].startswith("3 seeds of 2 variants find a difference to additive of ")
    sizes = {
        seeds: float(text.partition(" of ")[2].split(" of ")[1].split()[0])
        for seeds, text in said.items()
        if seeds > 1
    }
    assert sizes[5] < sizes[3]
    for seeds, size in sizes.items():
        assert chance_to_find(size, seeds, 1.0, 1.0, 1) == pytest.approx(0.8, abs=0.03)
