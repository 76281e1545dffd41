"""What is held equal is said before anything trains, and a budget that is missed is refused unless
the user accepts it.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments import Budget
from attnlab.experiments.define import Changes
from attnlab.experiments.plan import Plan, matching
from attnlab.experiments.run.planning import ensure, grow
from tests.experiments.plan.planning import WIDER, WIDEST
from tests.experiments.plans import experiment_file, plan
from tests.experiments.synthetic import met
from tests.refusals import check_refused

ACCEPTED = Changes(unmatched=True)
BUDGET = "budget=Budget('parameters', 'system.decoder', within={within})"


def missed(**changes: Any) -> Plan:
    """A plan whose second candidate misses the budget by 10 %."""
    made = plan(budget=Budget("parameters", "system.decoder"))
    budgets: tuple[Any, ...] = (met(100, matched=True), met(90, **changes))
    both = zip(made.candidates, budgets, strict=True)
    found = tuple(dataclasses.replace(candidate, budget=each) for candidate, each in both)
    return dataclasses.replace(made, candidates=found)


@pytest.mark.quick
def test_what_is_held_equal_is_said_variant_by_variant() -> None:
    """By which setting, how far off; without a budget in one line, and nothing is refused."""
    first, second = matching.budget_lines(missed(note="it makes no difference"))
    assert first.startswith("budget: additive has 100 parameters of 100 wanted (+0 %) by ")
    said = "general has 90 parameters of 100 wanted (-10 %) by system.width=8: NOT MATCHED within"
    assert second == f"budget: {said} 1 % (it makes no difference)"
    (line,) = matching.budget_lines(plan())
    assert line.startswith("parameters: additive ") and ", general " in line
    assert line.endswith(": not matched, for the experiment has no budget")
    assert matching.check_budget(plan(), None) == plan()


@pytest.mark.quick
def test_a_missed_budget_is_refused_or_accepted_on_record() -> None:
    """What stood in the plan of before is not judged again."""
    made = missed()
    with pytest.raises(UserError, match=r"budget: general has 90 .* accept it with --accept-unm"):
        matching.check_budget(made, None)
    accepted = matching.check_budget(dataclasses.replace(made, unmatched=True), None)
    assert [(one.budget or {}).get("accepted") for one in accepted.candidates] == [None, True]
    again = Plan.from_json(accepted.to_json(), "plan.json")
    assert matching.check_budget(made, again).candidates == accepted.candidates
    (_, second) = matching.check_budget(made, made).candidates
    assert second.budget == {**met(90), "accepted": False}


@pytest.mark.parametrize("search", [False, True])
def test_the_refusal_leaves_no_folder(search: bool, tmp_path: Path, inside: None) -> None:
    """The plan is refused, or written with the word."""
    lines = [WIDEST, BUDGET.format(within=0.0)]
    if search:
        lines.append("search=Search({'schedule.peak': choice(1e-3, 3e-3)}, trials=2)")
    file = experiment_file(tmp_path / "which.py", *lines)
    directory = tmp_path / "sweep"
    check_refused("NOT MATCHED within 0 %", ensure, file, directory)
    assert not directory.exists()
    ensure(file, directory, ACCEPTED)
    candidates = Plan.of_sweep(directory).candidates
    assert search or (candidates[1].budget or {}).get("accepted") is True


def test_all_options_of_a_search_are_looked_at(tmp_path: Path, inside: None) -> None:
    """The first option meets the budget, and the second does not."""
    search = "search=Search({'system.embedding': choice(400, 4)}, trials=2)"
    lines = [WIDER, BUDGET.format(within=1e-4), search]
    file = experiment_file(tmp_path / "which.py", *lines)
    check_refused(r"budget: wide \(system.embedding=4\) has ", ensure, file, tmp_path / "sweep")


def test_what_a_search_draws_is_refused_or_accepted_on_record(tmp_path: Path, inside: None) -> None:
    """The plan stays as it was; that it is accepted is said once, and holds for later draws."""
    search = "search=Search({'system.embedding': integers(400, 500)}, trials=2)"
    lines = [WIDER, BUDGET.format(within=1e-4), search]
    file = experiment_file(tmp_path / "which.py", *lines)
    directory = tmp_path / "sweep"
    ensure(file, directory)

    def draw(embedding: int) -> None:
        grow(directory, [("wide", {"system.embedding": embedding})])

    draw(400)
    check_refused(rf"wide \(system.embedding=4\) has .*{matching.FLAG}$", draw, 4)
    assert len(Plan.of_sweep(directory).candidates) == 1
    ensure(file, directory, ACCEPTED)
    draw(4)
    ensure(file, directory)
    draw(5)
    budgets = [candidate.budget or {} for candidate in Plan.of_sweep(directory).candidates]
    assert [budget.get("accepted") for budget in budgets] == [None, True, True]
