"""The cells of the tables: numbers as people read them, and what is partial or unmatched said in
words.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.plan.plan import Candidate
from attnlab.experiments.report import tables
from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import compare
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.verdict import judge
from attnlab.pages.tables import Table, memory, milliseconds
from tests.experiments.synthetic import CLAIM, SCORES, lines, sweep, workdir, write

ROOT = Path(__file__).resolve().parents[3]


def results(directory: Path, scores: Any = SCORES, **changes: Any) -> Table:
    records = collect(sweep(directory, scores, **changes))
    return tables.results(records, compare(records))


def cells(table: Table, row: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[row], strict=True))


@pytest.mark.quick
def test_results_show_scores_and_costs_in_one_row(tmp_path: Path) -> None:
    table = results(tmp_path)
    assert table.title == "exact on the test split, higher is better" and [
        row[0] for row in table.rows
    ] == list(SCORES)
    first, last = cells(table, 0), cells(table, 2)
    assert (first["n"], first["mean"], first["difference"], first["adjusted p"]) == (
        "4",
        "0.9250",
        "baseline",
        "-",
    )
    assert (
        first["parameters"],
        first["FLOPs per step"],
        first["ms per step"],
        first["peak memory"],
    ) == (
        "12,353",
        "2.5 G",
        "25",
        "300 MiB",
    )
    assert (last["difference"], last["its interval"], last["adjusted p"]) == (
        "-0.5000",
        "[-0.5185, -0.4815]",
        "< 0.001",
    )
    assert all(len(row) == len(table.columns) for row in table.rows)


@pytest.mark.quick
def test_the_page_on_reports_uses_the_words_of_the_tables(tmp_path: Path) -> None:
    page = " ".join((ROOT / "docs" / "report.md").read_text().split())
    words = (
        "XLA's count of one training step as lowered for the CPU, before it is optimised, loops"
        " counted in full, on a batch of mean size."
    )
    assert (
        any(f"FLOPs: {words}" in note for note in results(tmp_path).notes)
        and f"**FLOPs per step**: {words}" in page
    )
    for mark in (milliseconds(1.0, 4), memory(1.0, 4)):
        assert f"**{mark[mark.index('(') :].replace('4', 'N')}**" in page


@pytest.mark.quick
def test_one_seed_shows_a_number_and_nothing_else(tmp_path: Path) -> None:
    table = results(tmp_path, {"a": (0.9,), "b": (0.1,)})
    for row, difference in ((0, "baseline"), (1, "-0.8000")):
        found = cells(table, row)
        assert (found["n"], found["difference"]) == ("1", difference) and found["remark"] == ""
        assert {
            found[name] for name in ("95 % interval", "its interval", "adjusted p", "effect size")
        } == {"-"}
    assert not table.strong


def test_a_terminal_gets_the_same_in_narrow_tables(tmp_path: Path) -> None:
    whole = results(tmp_path / "final")
    means, differences, costs = tables.narrow(whole, "additive")
    assert {column for part in (means, differences, costs) for column in part.columns} == set(
        whole.columns
    )
    assert [row[0] for row in differences.rows] == ["general", "location"] and cells(
        differences, 1
    )["adjusted p"] == "< 0.001"
    assert cells(costs, 2)["parameters"] == "12,353"
    assert [
        part.title for part in tables.narrow(results(tmp_path / "half", final=False), "additive")
    ] == [
        "loss on the validation split, lower is better",
        "costs",
    ]
    assert [
        part.title
        for part in tables.narrow(
            results(tmp_path / "one", {"additive": (0.9, 0.8)}, claim=None), "additive"
        )
    ] == [
        "exact on the test split, higher is better",
        "costs",
    ]
    assert (
        differences.numbers == {1, 2, 3, 4}
        and costs.numbers == {1, 2, 3, 4}
        and means.numbers == {1, 2, 3}
    )


def test_a_partial_row_is_marked_and_the_best_one_too(tmp_path: Path) -> None:
    partial = results(tmp_path / "partial", {"a": (0.9, math.nan), "b": (0.1, 0.2)})
    assert (
        partial.weak == {0}
        and cells(partial, 0)["remark"] == "seed 1 diverged"
        and not partial.strong
    )
    clear = results(tmp_path / "clear", {"a": (0.90, 0.92, 0.91), "b": (0.10, 0.11, 0.13)})
    assert (
        clear.strong == {0}
        and cells(clear, 0)["remark"] == "best"
        and not any("No best" in note for note in clear.notes)
    )


@pytest.mark.quick
def test_why_no_variant_is_best(tmp_path: Path) -> None:
    """The reason that is given is the true one; with one seed or one variant there is no best one
    to speak of.
    """
    lost = {
        "a": (0.90, 0.92, math.nan, 0.91),
        "b": (0.10, 0.11, 0.12, 0.13),
    }  # as far apart as can be, but for the lost seed
    reasons = {
        "like": SCORES,
        "lost": lost,
        "one seed": {"a": (0.9,), "b": (0.1,)},
        "one variant": {"a": (0.9, 0.8)},
    }
    found = {
        name: [note for note in results(tmp_path / name, scores).notes if "No best" in note]
        for name, scores in reasons.items()
    }
    assert found == {
        "like": [
            "No best variant is marked: none is ahead of all others by Tukey's test of all pairs at"
            " 0.05."
        ],
        "lost": ["No best variant is marked, because not every row has every seed."],
        "one seed": [],
        "one variant": [],
    }


@pytest.mark.quick
def test_a_difference_over_fewer_seeds_says_so(tmp_path: Path) -> None:
    """What the baseline lost is missing from every difference, and not from the n of the row."""
    table = results(
        tmp_path,
        {"a": (0.9, math.nan, 0.8, 0.7), "b": (0.1, 0.2, 0.3, 0.4), "c": (0.1, math.nan, 0.2, 0.4)},
    )
    assert [(cells(table, row)["n"], cells(table, row)["remark"]) for row in range(3)] == [
        ("3", "seed 1 diverged"),
        ("4", "3 seeds in common with a"),
        ("3", "seed 1 diverged"),
    ]
    table = results(tmp_path / "one", {"a": (0.9, math.nan), "b": (0.1, 0.2)})
    assert (
        cells(table, 1)["remark"] == "1 seed in common with a"
        and cells(table, 1)["difference"] == "-0.7500"
    )


@pytest.mark.quick
def test_costs_of_trials_that_share_a_program_say_so(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"a": (0.9, 0.8, 0.7), "b": (0.1, 0.2, 0.3), "c": (0.1, 0.2, 0.3)})
    for seed in range(3):  # all of a share each step, of b the step in the middle stands alone
        for variant, counts in (("a", (4, 4, 4)), ("b", (1, 1, 3))):
            pace = [
                {"step": 3 + i, "step_seconds": 0.01 * (1 + i), "together": number}
                for i, number in enumerate(counts)
            ]
            lines(workdir(directory, variant, seed) / "timing.jsonl", pace)
    records = collect(directory)
    found = [cells(tables.results(records, compare(records)), row) for row in range(3)]
    assert [row["ms per step"] for row in found] == ["20 (share of a step of 4)", "20", "20"]
    assert [row["peak memory"] for row in found] == [
        "300 MiB (of 4 trials)",
        "300 MiB (of 3 trials)",
        "300 MiB",
    ]


def test_validation_scores_say_that_they_are(tmp_path: Path) -> None:
    table = results(tmp_path, final=False)
    assert table.title == "loss on the validation split, lower is better"
    assert (
        not set(tables.DIFFERENCES) & set(table.columns)
        and table.columns[-1] == "remark"
        and cells(table, 0)["budget"] == "-"
    )
    assert any("The test split has not been read" in note for note in table.notes) and not any(
        "Dunnett" in note for note in table.notes
    )


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
    budget = {
        "wanted": wanted,
        "reached": reached,
        "knob": "system.width",
        "value": 8,
        "matched": matched,
        "note": "",
    }
    assert tables.budget(Candidate("a-0", "a", {}, {}, {}, reached, 1.0, budget)) == text


def test_budgets_stand_in_their_column_and_their_absence_in_a_note(tmp_path: Path) -> None:
    directory = sweep(tmp_path)
    plan = json.loads((directory / "plan.json").read_text())
    plan["candidates"][0]["parameters"] = 24_704
    write(directory / "plan.json", plan)
    records = collect(directory)
    assert any(
        "parameters differ by up to 100 %" in note
        for note in tables.results(records, compare(records)).notes
    )
    plan["budget"] = {
        "match": "parameters",
        "within": 0.01,
        "knob": "system.width",
        "to": "additive",
        "knobs": {},
    }
    for one in plan["candidates"]:
        one["budget"] = {
            "wanted": 100,
            "reached": 112,
            "knob": "system.width",
            "value": 8,
            "matched": False,
            "note": "too coarse",
        }
    write(directory / "plan.json", plan)
    records = collect(directory)
    table = tables.results(records, compare(records))
    assert cells(table, 1)["budget"] == "NOT MATCHED (+12 %)" and not any(
        "not held equal" in note for note in table.notes
    )
    assert [row[-1] for row in tables.variants(records).rows] == [
        "-",
        "system.width=8",
        "system.width=8",
    ]
    assert (
        "Budget: parameters held to those of additive by system.width." in table.notes
        and "general: too coarse." in table.notes
    )


def test_what_the_budget_set_is_that_of_the_standing_candidate(tmp_path: Path) -> None:
    """Not that of whichever setting was tried last; before the choice all of them, and nothing for
    the model to match.
    """
    for final, expected in ((True, "system.width=8"), (False, "system.width=8 or system.width=16")):
        directory = sweep(tmp_path / str(final), tuned={0.003: 0.0, 0.001: 0.5}, final=final)
        plan = json.loads((directory / "plan.json").read_text())
        plan["budget"] = {
            "match": "parameters",
            "within": 0.01,
            "knob": "system.width",
            "to": "general",
            "knobs": {},
        }
        for one in plan["candidates"]:
            width = {0.003: 8, 0.001: 16}[one["tuned"]["schedule.peak"]]
            one["budget"] = {
                "wanted": 100,
                "reached": 100,
                "knob": "system.width",
                "value": width,
                "matched": True,
                "note": "",
            }
        write(directory / "plan.json", plan)
        assert [row[-1] for row in tables.variants(collect(directory)).rows] == [
            expected,
            "-",
            expected,
        ]


def test_contrasts_of_the_claim(tmp_path: Path) -> None:
    verdict = judge(compare(collect(sweep(tmp_path))), CLAIM)
    assert verdict is not None
    cells_ = (
        "additive - location >= 0.3",
        "4",
        "0.5000",
        "0.4875",
        "0.5125",
        "supported (by its lower bound)",
    )
    assert tables.contrasts(verdict).rows == (cells_,)


def test_tuning_lists_every_setting_and_the_chosen_one(tmp_path: Path) -> None:
    table = tables.tuning(
        collect(sweep(tmp_path / "tuned", tuned={0.001: 0.5, 0.003: 0.0})), "model"
    )
    assert (
        table is not None
        and table.strong == {1, 3, 5}
        and table.notes == ("Each variant had 2 settings tried.",)
    )
    assert [row[:4] for row in table.rows[:2]] == [
        ("additive", "peak=0.001", "4", "1.575"),
        ("additive", "peak=0.003", "4", "1.075"),
    ]
    assert [row[-1] for row in table.rows] == ["", "chosen"] * 3
    assert tables.tuning(collect(sweep(tmp_path / "plain")), "model") is None


def test_tuning_says_how_many_settings_trained(tmp_path: Path) -> None:
    directory = sweep(tmp_path, tuned={0.001: 0.5, 0.003: 0.0})
    choice = json.loads((directory / "choice.json").read_text())
    choice["chosen"]["general"] |= {
        "settings": 2,
        "trained": 1,
        "accepted": {"general-1/seed0": "OSError: no space left"},
    }
    choice["chosen"]["additive"] |= {"settings": 2, "trained": 2, "accepted": {}}
    write(directory / "choice.json", choice)
    table = tables.tuning(collect(directory), "t")
    assert table is not None and table.notes == (
        "Each variant had 2 settings tried.",
        (
            "general: 1 of 2 settings trained; chosen without general-1/seed0 (OSError: no space"
            " left)."
        ),
    )


def test_tuning_makes_its_intervals_like_the_rest(tmp_path: Path) -> None:
    """Of the validation losses of additive, 1.075 on average: a bootstrap interval stays inside
    them, that of t does not.
    """
    directory = sweep(tmp_path, tuned={0.001: 0.5, 0.003: 0.0})
    for method, expected in (("model", "[1.0506, 1.0994]"), ("bootstrap", "[1.0650, 1.0850]")):
        tuning = gather(directory, method).further[1]
        assert tuning.title.startswith("Tuning") and tuning.rows[1][:5] == (
            "additive",
            "peak=0.003",
            "4",
            "1.075",
            expected,
        )


def test_variants_say_what_they_are(tmp_path: Path) -> None:
    records = collect(
        sweep(
            tmp_path,
            variants={
                "additive": {},
                "general": {"system.attention.score": "general", "system.heads": 4},
            },
        )
    )
    table = tables.variants(records)
    assert table.columns == ("variant", "its settings")
    assert table.rows == (
        ("additive", "as the base"),
        ("general", "system.attention.score=general, system.heads=4"),
    )
    assert table.notes == ("All: configs/translation.py:rnnsearch with training.steps=12.",)


def test_a_search_is_described(tmp_path: Path) -> None:
    """Before the end of a search only its first seeds are trials, and a sweep without any candidate
    yet has empty tables.
    """
    search = {"sampler": "tpe", "trials": 2, "pruner": None, "at_once": 2, "seed": 0, "space": {}}
    records = collect(
        sweep(tmp_path / "some", tuned={0.001: 0.5, 0.003: 0.0}, search=search, final=False)
    )
    assert {record.seed for record in records.trials} == {0} and len(records.trials) == 6
    table = tables.tuning(records, "model")
    assert (
        table is not None
        and "searched for (sampler=tpe, trials=2" in table.notes[0]
        and {row[2] for row in table.rows} == {"1"}
    )
    assert table.notes[0].endswith(
        "Of them, additive: 2 done, 24 steps; general: 2 done, 24 steps; location: 2 done, 24"
        " steps."
    )
    records = collect(sweep(tmp_path / "none", search=search, candidates=[]))
    comparison = compare(records)
    assert (
        comparison.rows == ()
        and tables.results(records, comparison).rows == tables.trials(records).rows == ()
    )


def test_trials_show_their_state_and_why(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"a": (0.9, math.nan), "b": (0.1, 0.2)})
    table = tables.trials(collect(directory))
    assert table.rows[0] == ("a-0a1b2c3d", "0", "done", "12/12", "1", "0:00:30", "4.5 s", "")
    assert table.rows[1] == (
        "a-0a1b2c3d",
        "1",
        "diverged",
        "6/12",
        "1",
        "0:00:30",
        "4.5 s",
        "loss nan at step 6",
    ) and table.weak == {1}
