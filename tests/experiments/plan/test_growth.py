"""What may change in a sweep's folder, before the choice is made and after."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import Budget, Claim, better, grid, rows
from attnlab.experiments.plan.growth import check_growth
from tests.experiments.plans import EXPERIMENT, defined, plan
from tests.refusals import check_refused

LARGER = {
    "compare": (*EXPERIMENT.compare, *rows({"dot": {"system.attention.score": "dot"}})),
    "seeds": (0, 1, 2),
}
LOSS, EXACT = '{"metric": "loss", "mode": "min"}', '{"metric": "exact", "mode": "max"}'
MEANING: list[tuple[dict[str, Any], str]] = [
    ({"base": {"training.steps": 24}}, 'base: planned {"training.steps": 12}, now {"training.'),
    ({"select": ("accuracy", "max")}, "select: planned"),
    ({"measure": ("exact", "max")}, f"measure: planned {LOSS}, now {EXACT}"),
    ({"budget": Budget("flops", "system.decoder")}, "budget: planned null, now"),
    ({"tune": grid({"schedule.peak": (1e-3, 1e-2)})}, "tune: planned []"),
    ({"claim": Claim("Scores differ.", (better("general", "additive"),))}, "claim: planned"),
    ({"seeds": (1, 2)}, "seeds: planned [0, 1], now [1, 2]; further ones go to the end"),
    ({"seeds": (2, 0, 1)}, "seeds: planned [0, 1], now [2, 0, 1]; further ones go to the end"),
    ({"looks": 2}, "looks: planned 1, now 2"),
    ({"baseline": "general"}, 'baseline: planned "additive", now "general"'),
    ({"compare": EXPERIMENT.compare[:1], "claim": None}, "variant 'general' is gone"),
    (
        {"compare": rows({"additive": {"a": 1}, "general": {}})},
        "variant 'additive': planned {}, now {\"a\": 1}",
    ),
]


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    """A sweep folder whose choice is made."""
    (tmp_path / "choice.json").write_text("{}")
    return tmp_path


@pytest.mark.quick
def test_variants_seeds_and_words_may_come_after_the_choice(chosen: Path) -> None:
    check_growth(plan(), defined(**LARGER), chosen)
    assert EXPERIMENT.claim is not None
    mended = dataclasses.replace(EXPERIMENT.claim, statement="Scores do differ.")
    check_growth(plan(), defined(question="What?", claim=mended), chosen)


@pytest.mark.parametrize(("changes", "words"), MEANING)
def test_what_trials_mean_is_fixed_by_the_choice_and_free_before(
    changes: dict[str, Any], words: str, chosen: Path, tmp_path: Path
) -> None:
    words = f"its choice is made, so this can no longer change: .*{re.escape(words)}"
    check_refused(words, check_growth, plan(), defined(**changes), chosen)
    (chosen / "choice.json").unlink()
    check_growth(plan(), defined(**changes), tmp_path)


def test_another_experiment_is_refused_at_any_time(tmp_path: Path) -> None:
    words = "holds another experiment: its config is '.*:rnnsearch', here '.*:transformer'; use ano"
    other = defined(config="configs/translation.py:transformer")
    check_refused(words, check_growth, plan(), other, tmp_path)
