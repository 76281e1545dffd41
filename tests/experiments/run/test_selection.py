"""The choice on validation. And the record of looks: a choice before it is frozen, a reading of the
test split before it is opened; lines are only added.
"""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments import grid, rows
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run import Choice, looked, scoring, selection, wanted
from attnlab.experiments.run.selection import freeze, validation_score
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
    words = "valid.json is damaged or has no 'bleu'"
    check_refused(words, validation_score, trial, tmp_path, "bleu")
    (tmp_path / "choice.json").write_text('{"made": 1}')
    check_refused("choice.json is damaged", Choice.read, tmp_path)


@pytest.mark.quick
def test_every_freezing_is_recorded_with_what_it_freezes(tmp_path: Path) -> None:
    """A variant that comes later is frozen alone; freezing again what is frozen is none."""
    assert looked(tmp_path) == ()
    two = {"additive": {}, "general": {"system.attention.score": "general"}}
    plan = stub.finished(tmp_path, compare=rows(two))
    freeze(plan, tmp_path)
    freeze(plan, tmp_path)
    three = rows({**two, "dot": {"system.attention.score": "dot"}})
    more = stub.finished(tmp_path, compare=three, seeds=(0, 1, 2))
    freeze(dataclasses.replace(more, hash="1" * 12), tmp_path)
    first, second = looked(tmp_path)
    assert first["event"] == "choice" and first["seeds"] == (0, 1) and first["plan"] == plan.hash
    assert [*first["chosen"]] == ["additive", "general"]
    assert second["seeds"] == (0, 1, 2) and second["plan"] == "1" * 12
    assert second["chosen"] == {"dot": more.of("dot")[0].id}
    assert first["code"] is None or set(first["code"]) == {"revision", "tree", "dirty"}


def test_a_choice_is_recorded_before_it_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.finished(tmp_path)

    def full(self: Choice, directory: Path) -> None:
        raise UserError("no space")

    monkeypatch.setattr(Choice, "write", full)
    check_refused("no space", freeze, plan, tmp_path)
    assert [one["event"] for one in looked(tmp_path)] == ["choice"]
    assert Choice.read(tmp_path) is None


@pytest.mark.quick
def test_a_reading_that_fails_is_recorded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.finished(tmp_path)
    freeze(plan, tmp_path)
    candidate = plan.candidates[0]
    stub.looked_at(Trial(candidate, 0), tmp_path)
    # scored; only its pictures are to be drawn
    (Trial(candidate, 0).workdir(tmp_path) / "curves.png").unlink()
    seen = []

    def broken(trials: object, directory: Path) -> int:
        seen.append(looked(directory)[-1])
        raise RuntimeError("killed, say")

    monkeypatch.setattr(scoring, "_evaluate", broken)
    monkeypatch.setattr(scoring, "write_output_to", lambda path: None)
    assert scoring.run(tmp_path, candidate.id) == 1
    assert seen[0]["event"] == "test" and seen[0]["candidate"] == candidate.id
    assert seen[0]["scored"] == (1,) and seen[0]["seeds"] == (0, 1)
    assert len(looked(tmp_path)) == 2


def test_half_a_line_that_a_power_cut_has_left_goes(tmp_path: Path) -> None:
    plan = stub.finished(tmp_path)
    selection.note_test(tmp_path, plan, "a", [0])
    with open(tmp_path / selection.LOOKS, "a") as file:
        file.write('{"event": "te')
    assert len(looked(tmp_path)) == 1
    selection.note_test(tmp_path, plan, "b", [0])
    assert [one["candidate"] for one in looked(tmp_path)] == ["a", "b"]
    assert all(json.loads(line) for line in (tmp_path / selection.LOOKS).read_text().splitlines())
