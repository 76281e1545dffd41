"""The choice on validation."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments import grid
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run.selection import Choice, freeze, validation_score, wanted
from tests.experiments import stub
from tests.refusals import check_refused

NAN = math.nan


def tuned(directory: Path, losses: dict[str, tuple[float | None, ...]], **changes: object) -> Plan:
    """A plan of two variants with one or more rates each; `losses` by rate and seed, the same for
    both; None: failed.
    """
    tune = grid({"schedule.peak": tuple(map(float, losses))})
    plan = stub.planned(directory, tune=tune, **changes)
    for candidate in plan.candidates:
        known = losses[str(candidate.tuned["schedule.peak"])]
        for seed, loss in zip(plan.seeds, known, strict=True):
            state = "failed" if loss is None else "done"
            stub.finish(Trial(candidate, seed), directory, state, loss or 0.0)
    return plan


def rates(plan: Plan, choice: Choice) -> dict[str, float]:
    """The chosen rate of each variant."""
    of = {one.id: one.tuned["schedule.peak"] for one in plan.candidates}
    return {variant: of[one["candidate"]] for variant, one in choice.chosen.items()}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("losses", "mode", "rate", "whole"),
    [
        # by the mean, not by the best seed
        ({"0.1": (1.0, 2.0), "0.2": (1.2, 1.7)}, "min", 0.2, True),
        ({"0.1": (1.0, 2.0), "0.2": (1.2, 1.7)}, "max", 0.1, True),
        ({"0.1": (1.5, 1.5), "0.2": (1.0, 2.0)}, "min", 0.1, True),  # the first of equals
        # a whole one stands before a better one that lacks a seed
        ({"0.1": (0.1, None), "0.2": (2.0, 2.0)}, "min", 0.2, True),
        ({"0.1": (0.1, NAN), "0.2": (2.0, 2.0)}, "min", 0.2, True),
        ({"0.1": (3.0, None), "0.2": (None, 2.0)}, "min", 0.2, False),
    ],
)
def test_which_candidate_stands_for_its_variant(
    losses: dict[str, tuple[float | None, ...]], mode: str, rate: float, whole: bool, tmp_path: Path
) -> None:
    plan = tuned(tmp_path, losses, select=("loss", mode))
    choice = freeze(plan, tmp_path)
    assert rates(plan, choice) == {"additive": rate, "general": rate}
    assert choice == Choice.read(tmp_path)
    assert {one["whole"] for one in choice.chosen.values()} == {whole}
    assert (choice.metric, choice.mode) == ("loss", mode)


def test_what_was_looked_at_is_written_beside_the_choice(tmp_path: Path) -> None:
    plan = tuned(tmp_path, {"0.1": (1.0, 2.0), "0.2": (3.0, None)})
    freeze(plan, tmp_path)
    found = json.loads((tmp_path / "choice.json").read_text())["chosen"]["additive"]["scores"]
    low, high = (one.id for one in plan.of("additive"))
    assert found == {
        low: {"mean": 1.5, "seeds": {"0": 1.0, "1": 2.0}},
        high: {"mean": 3.0, "seeds": {"0": 3.0}},
    }


def test_a_variant_without_any_result_is_left_open_and_chosen_later(tmp_path: Path) -> None:
    plan = tuned(tmp_path, {"0.1": (None, None)})
    first = freeze(plan, tmp_path)
    expected = {"additive": None, "general": None}
    assert {variant: first.candidate(variant) for variant in plan.variants} == expected
    assert wanted(plan, first) == plan.trials()
    for seed in plan.seeds:
        stub.finish(Trial(plan.candidates[0], seed), tmp_path)
    second = freeze(plan, tmp_path)
    assert second.candidate("additive") == plan.candidates[0].id
    assert second.candidate("general") is None and second.made == first.made


def test_a_variant_without_any_candidate_is_not_passed_over(tmp_path: Path) -> None:
    """Unless it was chosen before."""
    plan = tuned(tmp_path, {"0.1": (1.0, 1.0)})
    lost = dataclasses.replace(plan, candidates=tuple(plan.of("additive")))
    words = "variant 'general' has no candidate to choose from, so nothing is chosen"
    check_refused(words, freeze, lost, tmp_path)
    assert Choice.read(tmp_path) is None
    assert freeze(plan, tmp_path) == freeze(lost, tmp_path)


def test_a_frozen_choice_stays_whatever_comes_later(tmp_path: Path) -> None:
    """Better results, more seeds and more variants do not reopen it; trials of candidates left
    behind are wanted no more.
    """
    plan = tuned(tmp_path, {"0.1": (1.0, 1.0), "0.2": (2.0, 2.0)})
    choice = freeze(plan, tmp_path)
    before = (tmp_path / "choice.json").read_bytes()
    for trial in plan.trials():
        loss = 0.0 if trial.candidate.tuned["schedule.peak"] == 0.2 else 5.0
        stub.finish(trial, tmp_path, loss=loss)
    assert freeze(plan, tmp_path) == choice and (tmp_path / "choice.json").read_bytes() == before
    grown = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}), seeds=(0, 1, 2))
    rates_and_seeds = [(t.candidate.tuned["schedule.peak"], t.seed) for t in wanted(grown, choice)]
    assert rates_and_seeds == [(0.1, seed) for seed in (0, 0, 1, 1, 2, 2)]
    assert wanted(grown, None) == grown.trials()


def test_a_metric_that_is_not_there_is_told(tmp_path: Path) -> None:
    plan = tuned(tmp_path, {"0.1": (1.0, 1.0)})
    trial = plan.trials()[0]
    assert validation_score(trial, tmp_path, "step") == stub.STEPS
    with pytest.raises(UserError, match="valid.json is damaged or has no 'bleu'"):
        validation_score(trial, tmp_path, "bleu")
    (tmp_path / "choice.json").write_text('{"made": 1}')
    check_refused("choice.json is damaged", Choice.read, tmp_path)
