"""What stands below the table of results, and what is said before anything is trained."""

import math
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report import collect, compare, tables
from attnlab.experiments.report.notes import cost_notes, foresight
from attnlab.experiments.report.statistics.planned import Dunnett
from tests.experiments import plans
from tests.experiments.report.tabled import cells, results
from tests.experiments.synthetic import SCORES, lines, sweep, workdir


@pytest.mark.quick
def test_why_no_variant_is_best(tmp_path: Path) -> None:
    """The reason that is given is the true one; with one seed or one variant there is no best one
    to speak of.
    """
    # as far apart as can be, but for the lost seed
    lost = {"a": (0.90, 0.92, math.nan, 0.91), "b": (0.10, 0.11, 0.12, 0.13)}
    ahead = ": none is ahead of all others by Tukey's test of all pairs at 0.05."
    reasons: tuple[tuple[Any, list[str]], ...] = (
        (SCORES, [f"No best variant is marked{ahead}"]),
        (lost, ["No best variant is marked, because not every row has every seed."]),
        ({"a": (0.9,), "b": (0.1,)}, []),
        ({"a": (0.9, 0.8)}, []),
    )
    for place, (scores, reason) in enumerate(reasons):
        notes = results(tmp_path / str(place), scores).notes
        assert [note for note in notes if "No best" in note] == reason


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
    expected = ["300 MiB (of 4 trials)", "300 MiB (of 3 trials)", "300 MiB"]
    assert [row["peak memory"] for row in found] == expected


def test_the_note_names_the_model_and_what_is_judged_by_its_own_spread_too(tmp_path: Path) -> None:
    quiet = {"a": (0.50, 0.52, 0.51), "b": (0.51, 0.52, 0.50), "c": (0.50, 0.51, 0.51)}
    (note,) = (one for one in results(tmp_path / "quiet", quiet).notes if "over seeds" in one)
    assert "and the seed as a block, for they share seeds" in note and "own spread" not in note
    noisy = {**quiet, "d": (0.1, 0.9, 0.4)}
    table = results(tmp_path / "noisy", noisy)
    (note,) = (one for one in table.notes if "over seeds" in one)
    assert "the difference of d varies more over the seeds than that allows" in note
    assert "the mean of d varies" in note and not cells(table, 1)["remark"]
    assert cells(table, 3)["remark"] == "mean and difference judged by own spread too"


def test_a_missing_effect_size_is_explained(tmp_path: Path) -> None:
    """Two seeds of two variants leave one degree of freedom."""
    for place, scores in enumerate((SCORES, {"a": (0.5, 0.6), "b": (0.5, 0.7)})):
        table = results(tmp_path / str(place), scores)
        rows = [cells(table, row) for row in range(len(table.rows))]
        bare = any(row["effect size"] == "-" != row["its interval"] for row in rows)
        assert bare == any("fewer than two degrees" in note for note in table.notes) == bool(place)


def test_validation_scores_say_that_they_are(tmp_path: Path) -> None:
    table = results(tmp_path, final=False)
    assert not set(tables.DIFFERENCES) & set(table.columns) and table.columns[-1] == "remark"
    assert cells(table, 0)["budget"] == "-"
    assert any("The test split has not been read" in note for note in table.notes)
    assert not any("Dunnett" in note for note in table.notes)


def test_a_budget_of_updates_that_was_not_used_is_told(tmp_path: Path) -> None:
    directory = sweep(tmp_path)
    records = collect(directory)
    assert not any("Stopped early" in note for note in cost_notes(records))
    for record in records.trials[:2]:
        object.__setattr__(record.seen, "step", 5)
    words = f"Stopped early (training.stop): 2 of {len(records.trials)} trials, after 5 to 5 up"
    assert any(words in note for note in cost_notes(records))


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
        assert Dunnett(1.0, 1.0, 1).chance_to_find(size, seeds) == pytest.approx(0.8, abs=0.03)
