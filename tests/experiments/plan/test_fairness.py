"""Scores that a task does not have, or has too late, are refused while planning. What is held equal
is said before anything trains, and a budget that is missed is refused unless the user accepts it.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import Budget
from attnlab.experiments.define import Changes
from attnlab.experiments.plan import Plan, fairness
from attnlab.experiments.plan.process import made
from attnlab.experiments.run.planning import ensure, grow
from tests.experiments.plan.planning import SCORES, SEARCH, WIDER, WIDEST, refused
from tests.experiments.plans import experiment_file, plan
from tests.experiments.synthetic import met
from tests.refusals import check_refused

LSTM, ONE = "configs/language_modelling.py:lstm", {"a": {}}
pytestmark = pytest.mark.usefixtures("uncounted")


def planned(folder: Path, base: Any, *lines: str, config: str = LSTM, compare: Any = ONE) -> Plan:
    """The plan of an experiment that compares these rows; `lines` are further arguments."""
    lines = (f"compare=rows({compare!r})", *lines)
    file = experiment_file(folder / "which.py", *lines, imports=SEARCH, config=config, base=base)
    return made(file, folder / "sweep")


def base_of_texts(folder: Path) -> dict[str, Any]:
    """The settings of a small system on texts of two words, which it writes."""
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("a b a b\nb a b a\n")
    return {"data": "text", "data.directory": str(folder), "system.width": 4}


def test_a_measure_that_the_data_cannot_give_is_refused(tmp_path: Path) -> None:
    """Plain text does not tell which words can be recalled."""
    recall = "measure=('recall', 'max')"
    base = base_of_texts(tmp_path)
    check_refused("measure: unknown metric 'recall'", planned, tmp_path, base, recall)


DIFFERING = {
    "char": "vocabulary.kind",
    "half": "data.train",
    "cut": "batch.max_length",
    "low": "vocabulary.lowercase",
}
CASE = "vocabulary.lowercase or normaliser"
SAME = "compares them only if they have the same"
TOLD = {
    "loss": {
        "char": f": loss {SAME} vocabulary; bits_per_character does in any case",
        "half": f": loss {SAME} test examples and vocabulary",
        "cut": f": loss {SAME} test examples and vocabulary",
        "low": f": loss {SAME} vocabulary; no other measure does in any case",
    },
    "bits_per_character": {
        "char": ", on which bits_per_character does not depend: it compares them",
        "half": f": bits_per_character {SAME} test examples",
        "cut": f": bits_per_character {SAME} test examples",
        "low": f": bits_per_character {SAME} {CASE}; no other measure does in any case",
    },
}


@pytest.mark.parametrize("measure", TOLD)
def test_what_may_not_be_compared_is_said_before_anything_is_trained(
    measure: str, tmp_path: Path, capsys: Any
) -> None:
    """Variants that differ in nothing but the system have no line."""
    values = {"char": "char", "half": "train.txt[:50%]", "cut": 3, "low": True}
    variants: dict[str, Any] = {"word": {}, "wide": {"system.width": 8}}
    variants |= {name: {key: values[name]} for name, key in DIFFERING.items()}
    planned(tmp_path, base_of_texts(tmp_path), f"measure=({measure!r}, 'min')", compare=variants)
    told = TOLD[measure].items()
    said = {f"note: {name} and word differ in {DIFFERING[name]}{line}" for name, line in told}
    assert set(capsys.readouterr().err.splitlines()) == said


PRUNED = (
    "search=Search({'schedule.peak': choice(1e-3, 3e-3)}, sampler='random', trials=2,"
    " pruner='halving')"
)


@pytest.mark.parametrize(
    ("config", "metric"),
    [
        ("configs/classification.py", "macro_f1"),
        ("configs/language_modelling.py:lstm", "recall"),
        ("configs/language_modelling.py:lstm", "bits_per_character"),
    ],
)
def test_a_pruner_looks_at_any_score_known_while_training(
    config: str, metric: str, tmp_path: Path
) -> None:
    base = {"data.examples": 60, "data.valid": 8, "system.width": 4}
    mode = "min" if metric.startswith("bits") else "max"
    select = f"select=({metric!r}, {mode!r})"
    plan = planned(tmp_path, base, select, PRUNED, config=config)
    assert (plan.search["pruner"], plan.select["metric"]) == ("halving", metric)


def test_a_pruner_is_refused_a_score_that_only_decoding_gives(tmp_path: Path, quick: None) -> None:
    words = "search.pruner needs a score that is known while a trial trains, not 'exact'; choose"
    assert words in refused(tmp_path, SCORES, PRUNED, "select=('exact', 'max')", imports=SEARCH)
    assert not (tmp_path / "sweep").exists()


def test_a_pruner_needs_three_evaluations(tmp_path: Path, quick: None) -> None:
    words = "training.evaluate_every=6 of 12 steps makes fewer than three"
    assert f"{words}; set it to 4 or less" in refused(tmp_path, SCORES, PRUNED, imports=SEARCH)


@pytest.mark.parametrize(
    ("metric", "key", "told"),
    [
        ("loss", "kind", r"vocabulary.kind tunes.* select by bits_per_character, or"),
        ("bits_per_character", "kind", ""),
        ("loss", "lowercase", r"vocabulary.lowercase tunes.* select by another score, or"),
        ("bits_per_character", "lowercase", r"vocabulary.lowercase tunes.* by another score, or"),
    ],
)
def test_a_score_that_depends_on_the_vocabulary_does_not_choose_one(
    metric: str, key: str, told: str, tmp_path: Path
) -> None:
    """Nats per token of characters are fewer than of words, and bits per character of lower-cased
    texts than of others, whichever model is better.
    """
    values = ("word", "char") if key == "kind" else (False, True)
    tune = f"tune=grid({ {f'vocabulary.{key}': values}!r})"
    lines = (base_of_texts(tmp_path), tune, f"select=({metric!r}, 'min')")
    if told:
        check_refused(told, planned, tmp_path, *lines)
    else:
        assert len(planned(tmp_path, *lines).candidates) == 2


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
    first, second = fairness.budget_lines(missed(note="it makes no difference"))
    assert first.startswith("budget: additive has 100 parameters of 100 wanted (+0 %) by ")
    said = "general has 90 parameters of 100 wanted (-10 %) by system.width=8: NOT MATCHED within"
    assert second == f"budget: {said} 1 % (it makes no difference)"
    (line,) = fairness.budget_lines(plan())
    assert line.startswith("parameters: additive ") and ", general " in line
    assert line.endswith(": not matched, for the experiment has no budget")
    assert fairness.check_budget(plan(), None) == plan()


@pytest.mark.quick
def test_a_missed_budget_is_refused_or_accepted_on_record() -> None:
    """What stood in the plan of before is not judged again."""
    made = missed()
    words = r"budget: general has 90 .* accept it with --accept-unm"
    check_refused(words, fairness.check_budget, made, None)
    accepted = fairness.check_budget(dataclasses.replace(made, unmatched=True), None)
    assert [(one.budget or {}).get("accepted") for one in accepted.candidates] == [None, True]
    again = Plan.from_json(accepted.to_json(), "plan.json")
    assert fairness.check_budget(made, again).candidates == accepted.candidates
    (_, second) = fairness.check_budget(made, made).candidates
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
    check_refused(rf"wide \(system.embedding=4\) has .*{fairness.FLAG}$", draw, 4)
    assert len(Plan.of_sweep(directory).candidates) == 1
    ensure(file, directory, ACCEPTED)
    draw(4)
    ensure(file, directory)
    draw(5)
    budgets = [candidate.budget or {} for candidate in Plan.of_sweep(directory).candidates]
    assert [budget.get("accepted") for budget in budgets] == [None, True, True]
