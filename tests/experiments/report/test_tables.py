"""The cells of the tables: numbers as people read them, and what is partial or unmatched said in
words.
"""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import Budget
from attnlab.experiments.plan import Candidate, fairness
from attnlab.experiments.report import collect, compare, tables
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.verdict import judge
from attnlab.pages.tables import latex, memory, milliseconds
from tests.experiments.plans import plan
from tests.experiments.report.tabled import cells, compared, main, part, results
from tests.experiments.synthetic import CLAIM, SCORES, budget, changing, edit_candidates, met, sweep

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.quick
def test_results_show_scores_and_costs_in_one_row(tmp_path: Path) -> None:
    table = results(tmp_path)
    assert table.title == "exact on the test split, higher is better"
    assert [row[0] for row in table.rows] == list(SCORES)
    first, last = cells(table, 0), cells(table, 2)
    assert first["n"] == "4" and first["mean"] == "0.9250" and first["difference"] == "baseline"
    assert first["adjusted p"] == "-"
    assert first["parameters"] == "12,353" and first["FLOPs per step"] == "2.5 G"
    assert first["ms per step"] == "25" and first["peak memory"] == "300 MiB"
    assert last["difference"] == "-0.5000" and last["its interval"] == "[-0.5185, -0.4815]"
    assert last["adjusted p"] == "< 0.001"
    assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.quick
def test_the_page_on_reports_uses_the_words_of_the_tables(tmp_path: Path) -> None:
    page = " ".join((ROOT / "docs" / "report.md").read_text().split())
    words = (
        "XLA's count of one training step as lowered for the CPU, before it is optimised, loops"
        " counted in full, on a batch of mean size."
    )
    assert any(f"FLOPs: {words}" in note for note in results(tmp_path).notes)
    assert f"**FLOPs per step**: {words}" in page
    for mark in (milliseconds(1.0, 4), memory(1.0, 4)):
        assert f"**{mark[mark.index('(') :].replace('4', 'N')}**" in page


@pytest.mark.quick
def test_one_seed_shows_a_number_and_nothing_else(tmp_path: Path) -> None:
    table = results(tmp_path, {"a": (0.9,), "b": (0.1,)})
    for row, difference in ((0, "baseline"), (1, "-0.8000")):
        found = cells(table, row)
        assert (found["n"], found["difference"]) == ("1", difference) and found["remark"] == ""
        marks = ("95 % interval", "its interval", "adjusted p", "effect size")
        assert {found[name] for name in marks} == {"-"}
    assert not table.strong


def test_a_terminal_gets_the_same_in_narrow_tables(tmp_path: Path) -> None:
    whole = results(tmp_path / "final")
    means, differences, costs = tables.narrow(whole, "additive")
    columns = {column for part in (means, differences, costs) for column in part.columns}
    assert columns == set(whole.columns)
    assert [row[0] for row in differences.rows] == ["general", "location"]
    assert cells(differences, 1)["adjusted p"] == "< 0.001"
    assert cells(costs, 2)["parameters"] == "12,353"
    half = tables.narrow(results(tmp_path / "half", final=False), "additive")
    expected = ["loss on the validation split, lower is better", "costs"]
    assert [part.title for part in half] == expected
    one = tables.narrow(results(tmp_path / "one", {"additive": (0.9, 0.8)}, claim=None), "additive")
    assert [part.title for part in one] == ["exact on the test split, higher is better", "costs"]
    assert differences.numbers == {1, 2, 3, 4} and costs.numbers == {1, 2, 3, 4}
    assert means.numbers == {1, 2, 3}


def test_a_partial_row_is_marked_and_the_best_one_too(tmp_path: Path) -> None:
    partial = results(tmp_path / "partial", {"a": (0.9, math.nan), "b": (0.1, 0.2)})
    assert partial.weak == {0} and cells(partial, 0)["remark"] == "seed 1 diverged"
    assert not partial.strong
    clear = results(tmp_path / "clear", {"a": (0.90, 0.92, 0.91), "b": (0.10, 0.11, 0.13)})
    assert clear.strong == {0} and cells(clear, 0)["remark"] == "best"
    assert not any("No best" in note for note in clear.notes)


@pytest.mark.quick
def test_a_difference_over_fewer_seeds_says_so(tmp_path: Path) -> None:
    """What the baseline lost is missing from every difference, and not from the n of the row."""
    scores = {"a": (0.9, math.nan, 0.8, 0.7), "b": (0.1, 0.2, 0.3, 0.4)}
    table = results(tmp_path, {**scores, "c": (0.1, math.nan, 0.2, 0.4)})
    shown = [(cells(table, row)["n"], cells(table, row)["remark"]) for row in range(3)]
    lost = ("3", "seed 1 diverged")
    assert shown == [lost, ("4", "3 seeds in common with a"), lost]
    table = results(tmp_path / "one", {"a": (0.9, math.nan), "b": (0.1, 0.2)})
    assert cells(table, 1)["remark"] == "1 seed in common with a"
    assert cells(table, 1)["difference"] == "-0.7500"


@pytest.mark.parametrize(
    ("wanted", "reached", "matched", "text"),
    [
        (1000, 1000, True, "matched"),
        (100_000, 100_401, True, "matched within 0.41 %"),  # never less than it is
        (1000, 995, True, "matched within 0.5 %"),
        (1000, 1120, False, "NOT MATCHED (+12 %)"),
        (1000, 940, False, "NOT MATCHED (-6 %)"),
    ],
)
def test_budgets(wanted: int, reached: int, matched: bool, text: str) -> None:
    result = met(reached, wanted, matched=matched)
    candidate = Candidate("a-0", "a", {}, {}, {}, reached, 1.0, result)
    assert tables.budget(candidate) == text
    made = dataclasses.replace(plan(budget=Budget("parameters", "x")), candidates=(candidate,))
    (line,) = fairness.budget_lines(made)
    (off,) = re.findall(r"wanted \([+-]([\d.]+) %\)", line)
    assert f"{off} %" in text or off == "0" == f"{wanted - reached}"


def test_budgets_stand_in_their_column_and_their_absence_in_a_note(tmp_path: Path) -> None:
    directory = sweep(tmp_path)
    with changing(directory / "plan.json") as plan:
        plan["candidates"][0]["parameters"] = 24_704
    records = collect(directory)
    notes = tables.results(records, compare(records)).notes
    assert any("parameters differ by up to 100 %" in note for note in notes)
    directory = sweep(tmp_path / "held", budget=budget("additive", "system.width"))
    edit_candidates(directory, budget=met(112, note="too coarse"))
    records = collect(directory)
    table = tables.results(records, compare(records))
    assert cells(table, 1)["budget"] == "NOT MATCHED (+12 %)"
    assert not any("not held equal" in note for note in table.notes)
    expected = ["-", "system.width=8", "system.width=8"]
    assert [row[-1] for row in tables.variants(records).rows] == expected
    assert "Budget: parameters held to those of additive by system.width." in table.notes
    assert "general: too coarse." in table.notes


def test_what_the_budget_set_is_that_of_the_standing_candidate(tmp_path: Path) -> None:
    """Not that of whichever setting was tried last; before the choice all of them, and nothing for
    the model to match.
    """
    for final, expected in ((True, "system.width=8"), (False, "system.width=8 or system.width=16")):
        directory = sweep(tmp_path / str(final), tuned={0.003: 0.0, 0.001: 0.5}, final=final)
        with changing(directory / "plan.json") as plan:
            for candidate in plan["candidates"]:
                width = {0.003: 8, 0.001: 16}[candidate["tuned"]["schedule.peak"]]
                candidate["budget"] = met(100, value=width, matched=True)
            plan["budget"] = budget("general", "system.width")
        widths = [row[-1] for row in tables.variants(collect(directory)).rows]
        assert widths == [expected, "-", expected]


def test_contrasts_of_the_claim(tmp_path: Path) -> None:
    verdict = judge(compared(tmp_path), CLAIM)
    (row,) = tables.contrasts(verdict).rows
    assert row[:5] == ("additive - location >= 0.3", "4", "0.5000", "0.4875", "0.5125")
    assert row[5:] == ("supported (by its lower bound)",)


def test_variants_say_what_they_are(tmp_path: Path) -> None:
    general = {"system.attention.score": "general", "system.heads": 4}
    variants = {"additive": {}, "general": general}
    table = tables.variants(collect(sweep(tmp_path, variants=variants)))
    assert table.columns == ("variant", "its settings")
    general = ("general", "system.attention.score=general, system.heads=4")
    assert table.rows == (("additive", "as the base"), general)
    assert table.notes == ("All: configs/translation.py:rnnsearch with training.steps=12.",)


def test_trials_show_their_state_and_why(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"a": (0.9, math.nan), "b": (0.1, 0.2)})
    table = tables.trials(collect(directory))
    assert table.rows[0] == ("a-0a1b2c3d", "0", "done", "12/12", "1", "0:00:30", "4.5 s", "")
    assert table.rows[1][:5] == ("a-0a1b2c3d", "1", "diverged", "6/12", "1")
    assert table.rows[1][5:] == ("0:00:30", "4.5 s", "loss nan at step 6") and table.weak == {1}


@pytest.mark.quick
def test_three_columns_for_a_paper(tmp_path: Path) -> None:
    """Mean with its interval, difference with its p; the baseline has none; nothing is said of
    costs that are not shown.
    """
    contents = gather(sweep(tmp_path))
    table = tables.paper(contents.records, contents.comparison)
    assert table.columns == ("variant", "exact", "difference to additive")
    base, _, worst = table.rows
    assert base == ("additive", "0.9250 [0.9005, 0.9495]", "-")
    assert re.fullmatch(r"-0\.5000 \(p < 0\.001\)", worst[2]) and worst[1].startswith("0.4250 [")
    notes = " ".join(table.notes)
    assert "Intervals: 95 %" in notes and "adjusted" in notes and "FLOPs" not in notes
    assert "Budgets" not in notes
    lines = latex(table).splitlines()
    assert r"\begin{tabular}{lrr}" in lines
    assert all(line.count(" & ") == 2 and line.endswith(r" \\") for line in lines if " & " in line)
    assert r"location & 0.4250 {[}0.3871, 0.4629] & $-$0.5000 (p $<$ 0.001) \\" in lines


def test_columns_for_a_paper_before_the_choice(tmp_path: Path) -> None:
    contents = gather(sweep(tmp_path, final=False))
    assert tables.paper(contents.records, contents.comparison).columns == ("variant", "loss")


def test_columns_for_a_paper_by_name(tmp_path: Path) -> None:
    contents = gather(sweep(tmp_path))
    table = tables.paper(contents.records, contents.comparison, ("variant", "mean", "parameters"))
    assert table.columns == ("variant", "mean", "parameters")
    assert table.rows[0] == ("additive", "0.9250", "12,353")
    assert any("FLOPs" in note for note in table.notes)
    whole = main(contents)
    assert tables.paper(contents.records, contents.comparison, whole.columns) == whole


def test_tuning_lists_every_setting_and_the_chosen_one(tmp_path: Path) -> None:
    directory = sweep(tmp_path / "tuned", tuned={0.001: 0.5, 0.003: 0.0})
    table = tables.tried(collect(directory), "model")
    assert table is not None and table.strong == {1, 3, 5}
    assert table.notes == ("Each variant had 2 settings tried.",)
    expected = [("additive", "peak=0.001", "4", "1.575"), ("additive", "peak=0.003", "4", "1.075")]
    assert [row[:4] for row in table.rows[:2]] == expected
    assert [row[-1] for row in table.rows] == ["", "chosen"] * 3
    assert tables.tried(collect(sweep(tmp_path / "plain")), "model") is None


def test_tuning_says_how_many_settings_trained(tmp_path: Path) -> None:
    directory = sweep(tmp_path, tuned={0.001: 0.5, 0.003: 0.0})
    lost = {"general-1/seed0": "OSError: no space left"}
    with changing(directory / "choice.json") as choice:
        choice["chosen"]["general"] |= {"settings": 2, "trained": 1, "accepted": lost}
        choice["chosen"]["additive"] |= {"settings": 2, "trained": 2, "accepted": {}}
    table = tables.tried(collect(directory), "t")
    assert table is not None and table.notes[0] == "Each variant had 2 settings tried."
    without = "chosen without general-1/seed0 (OSError: no space left)"
    assert table.notes[1:] == (f"general: 1 of 2 settings trained; {without}.",)


def test_tuning_makes_its_intervals_like_the_rest(tmp_path: Path) -> None:
    """Of the validation losses of additive, 1.075 on average: a bootstrap interval stays inside
    them, that of t does not.
    """
    directory = sweep(tmp_path, tuned={0.001: 0.5, 0.003: 0.0})
    for method, expected in (("model", "[1.0506, 1.0994]"), ("bootstrap", "[1.0650, 1.0850]")):
        tuning = part(gather(directory, method), "Tuning, on the validation split")
        assert tuning.rows[1][:5] == ("additive", "peak=0.003", "4", "1.075", expected)


def test_a_search_is_described(tmp_path: Path) -> None:
    """Before the end of a search only its first seeds are trials, and a sweep without any candidate
    yet has empty tables.
    """
    search = {"sampler": "tpe", "trials": 2, "pruner": None, "at_once": 2, "seed": 0, "space": {}}
    tuned: dict[str, Any] = {"tuned": {0.001: 0.5, 0.003: 0.0}, "search": search}
    records = collect(sweep(tmp_path / "some", **tuned, final=False))
    assert {record.seed for record in records.trials} == {0} and len(records.trials) == 6
    table = tables.tried(records, "model")
    assert table is not None and "searched for (sampler=tpe, trials=2" in table.notes[0]
    assert {row[2] for row in table.rows} == {"1"}
    each = "{}: 2 done, 24 steps".format
    words = "; ".join(map(each, ("additive", "general", "location")))
    assert table.notes[0].endswith(f"Of them, {words}.")
    records = collect(sweep(tmp_path / "none", search=search, candidates=[]))
    comparison = compare(records)
    assert comparison.rows == ()
    assert tables.results(records, comparison).rows == tables.trials(records).rows == ()
