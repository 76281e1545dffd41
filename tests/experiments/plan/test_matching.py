"""What is held equal is said before anything trains, and a budget that is missed is refused unless
the user accepts it.
"""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments import Budget
from attnlab.experiments.plan import matching, process
from attnlab.experiments.plan.plan import Plan
from tests.experiments.plan.planning import WIDEST, quick
from tests.experiments.plans import experiment_file, plan
from tests.experiments.synthetic import met

assert quick  # a fixture
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
    said = (
        "general has 90 parameters of 100 wanted (-10 %) by system.width=8: NOT MATCHED within 1 %"
    )
    assert second == f"budget: {said} (it makes no difference)"
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
def test_the_refusal_leaves_no_folder(
    search: bool, tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the process that plans: the draft says it, the plan is refused or written with the word."""
    lines = [WIDEST, BUDGET.format(within=0.0)]
    imports = ""
    if search:
        imports = "from attnlab.experiments.define.search import Search, choice"
        lines.append("search=Search({'schedule.peak': choice(1e-3, 3e-3)}, trials=2)")
    file = experiment_file(tmp_path / "which.py", *lines, imports=imports)
    directory = str(tmp_path / "sweep")
    assert process.main([file, directory]) == 2
    assert "NOT MATCHED within 0 %" in capsys.readouterr().err
    assert not (tmp_path / "sweep" / "plan.json").exists()
    assert process.main([file, directory, matching.FLAG]) == 0
    candidates = json.loads((tmp_path / "sweep" / "plan.json").read_text())["candidates"]
    assert search or candidates[1]["budget"]["accepted"] is True


SEARCHED = "from attnlab.experiments.define.search import Search, choice, integers"
WIDER = "compare=rows({'additive': {}, 'wide': {'system.encoder': 10}})"


def test_all_options_of_a_search_are_looked_at(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first option meets the budget, and the second does not."""
    search = "search=Search({'system.embedding': choice(400, 4)}, trials=2)"
    lines = [WIDER, BUDGET.format(within=1e-4), search]
    file = experiment_file(tmp_path / "which.py", *lines, imports=SEARCHED)
    assert process.main([file, str(tmp_path / "sweep")]) == 2
    assert "budget: wide (system.embedding=4) has " in capsys.readouterr().err


def test_what_a_search_draws_is_refused_or_accepted_on_record(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan stays as it was; that it is accepted is said once, and holds for later draws."""
    search = "search=Search({'system.embedding': integers(400, 500)}, trials=2)"
    lines = [WIDER, BUDGET.format(within=1e-4), search]
    file = experiment_file(tmp_path / "which.py", *lines, imports=SEARCHED)
    directory = tmp_path / "sweep"
    assert process.main([file, str(directory)]) == 0

    def drawn(embedding: int) -> int:
        points = json.dumps([["wide", {"system.embedding": embedding}]])
        monkeypatch.setattr("sys.stdin", io.StringIO(points))
        return process.main([str(directory), "--grow"])

    assert drawn(400) == 0
    assert drawn(4) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "wide (system.embedding=4) has " in line and line.endswith(matching.FLAG)
    assert len(json.loads((directory / "plan.json").read_text())["candidates"]) == 1
    assert process.main([file, str(directory), matching.FLAG]) == 0
    assert drawn(4) == 0
    assert process.main([file, str(directory)]) == 0
    assert drawn(5) == 0
    candidates = json.loads((directory / "plan.json").read_text())["candidates"]
    assert [one["budget"].get("accepted") for one in candidates] == [None, True, True]
