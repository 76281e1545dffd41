"""Two sweeps side by side: what is paired and what is not, what differs, and what cannot be
compared.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from attnlab.experiments.report.across import Across, across, as_csv, differing, table
from tests.experiments.synthetic import budget, changing, edit, scored_on, sweep, workdir
from tests.refusals import check_refused

FIRST = {"a": (0.90, 0.92, 0.91, 0.94), "b": (0.50, 0.53, 0.50, 0.52)}
SECOND = {"a": (0.94, 0.95, 0.95, 0.99), "c": (0.10, 0.11, 0.10, 0.12)}


def looked(directory: Path, digest: str = "t") -> Path:
    """All trials of a sweep with what they have read of the test split."""
    for path in directory.glob("trials/*/seed*"):
        (path / "look.json").write_text(json.dumps({"time": "", "data": {"test": digest * 64}}))
    return directory


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return looked(sweep(tmp_path / "first", FIRST)), looked(sweep(tmp_path / "second", SECOND))


def by_name(found: Across) -> dict[str, Any]:
    return {pair.name: pair for pair in found.pairs}


@pytest.mark.quick
def test_shared_seeds_are_compared_by_seed(two: tuple[Path, Path]) -> None:
    found = by_name(across(*two))
    gap = found["a"].gap
    exact = stats.ttest_rel(SECOND["a"], FIRST["a"]).confidence_interval(0.95)
    assert gap.method == "by seed"
    assert (gap.mean, gap.interval) == (pytest.approx(0.04), pytest.approx((exact.low, exact.high)))
    assert (found["b"].gap, found["c"].gap) == (None, None) and list(found) == ["a", "b", "c"]
    shown = {row[0]: row for row in table(across(*two)).rows}
    assert shown["a"][1].startswith("0.9175 [") and shown["a"][3] == "+0.04000"
    assert shown["b"][2] == "-" and shown["c"][-1] == "only in B"


@pytest.mark.parametrize(
    "reason", ["another test split", "test split is not on record", "other seeds"]
)
def test_what_does_not_pair_is_compared_as_two_samples(two: tuple[Path, Path], reason: str) -> None:
    (first, second), other = two, SECOND["a"]
    if reason == "another test split":
        looked(second, "u")
    elif reason == "other seeds":
        other = other[:3]
        second = looked(sweep(second.with_name("third"), {"a": other, "c": (0.1, 0.2, 0.3)}))
    else:
        (workdir(second, "a", 1) / "look.json").unlink()
    found = across(first, second)
    gap = by_name(found)["a"].gap
    exact = stats.ttest_ind(other, FIRST["a"]).confidence_interval(0.95)
    assert gap.method == "as two samples" and gap.interval == pytest.approx((exact.low, exact.high))
    assert reason in {row[0]: row for row in table(found).rows}["a"][-1]
    of_data = ("test data", "t" * 12, "u" * 12, "") in differing(found).rows
    assert of_data == (reason == "another test split")


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    one = looked(sweep(tmp_path / "one", {"a": (0.5,)}))
    other = looked(sweep(tmp_path / "other", {"a": (0.7,)}))
    (pair,) = across(one, other).pairs
    assert (pair.gap.mean, pair.gap.interval) == (pytest.approx(0.2), None)


def test_variants_that_were_renamed_are_found_by_their_settings(two: tuple[Path, Path]) -> None:
    """The third of the second sweep has the settings of "b"; what has no like in the other stands
    alone.
    """
    with changing(two[1] / "plan.json") as plan:
        plan["candidates"][1]["config"]["system"]["attention"]["score"] = "b"
    expected = [("a", True), ("b = c", True)]
    assert [(pair.name, pair.gap is not None) for pair in across(*two).pairs] == expected


@pytest.mark.quick
def test_what_differs_is_named(two: tuple[Path, Path]) -> None:
    """Code, packages, settings of all variants and of one: each once; what is alike is left out."""
    with changing(two[1] / "plan.json") as plan:
        plan["candidates"][0]["config"] |= {"training": {"steps": 24}, "batch": 8}
        plan["budget"] = budget("a", match="flops")
    packages = {"jax": "0.11.0", "flax": "0.12.8"}
    other = {"code": {"revision": "e" * 40, "dirty": True}, "packages": packages}
    for path in two[1].glob("trials/*/seed*/manifest.json"):
        edit(path, **other)
    rows = differing(across(*two)).rows
    assert ("code", "f" * 12, f"{'e' * 12} with changes", "") in rows
    assert ("jax", "0.10.2", "0.11.0", "") in rows
    assert ("training.steps", "12", "24", "a") in rows and ("batch", "nothing", "8", "a") in rows
    assert ("budget", "none", "flops by system.decoder", "") in rows
    assert not {"flax", "python", "seeds", "config", "test data"} & {row[0] for row in rows}


def test_a_setting_that_differs_everywhere_is_told_once(
    tmp_path: Path, two: tuple[Path, Path]
) -> None:
    other = looked(sweep(tmp_path / "other", FIRST))
    assert differing(across(two[0], other)).rows == ()
    longer = {name: {"training.steps": 24} for name in FIRST}
    other = looked(sweep(tmp_path / "longer", FIRST, settings=longer))
    assert ("training.steps", "12", "24", "all variants") in differing(across(two[0], other)).rows


def test_what_cannot_be_compared(tmp_path: Path, two: tuple[Path, Path]) -> None:
    measure = {"metric": "loss", "mode": "min"}
    other, early = sweep(tmp_path / "other", FIRST, measure=measure), tmp_path / "early"
    words = f"has the measure 'exact' (max), {other} 'loss' (min); take two sweeps with"
    check_refused(re.escape(words), across, two[0], other)
    words = f"{early} is not scored on the test split yet; let its sweep come to its end first"
    check_refused(re.escape(words), across, two[0], sweep(early, FIRST, final=False))


def test_the_file_for_programs(two: tuple[Path, Path]) -> None:
    """Numbers are not rounded."""
    found = across(*two)
    rows = {row["variant"]: row for row in csv.DictReader(as_csv(found).splitlines())}
    gap = by_name(found)["a"].gap
    assert float(rows["a"]["difference"]) == gap.mean
    assert float(rows["a"]["difference low"]) == gap.interval[0]
    assert rows["a"]["first n"] == "4" and rows["b"]["second mean"] == ""
    assert rows["c"]["remark"] == "only in B"


def test_another_count_or_none_on_record_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """A sweep of an earlier version says nothing of its measure; one on fewer examples has another
    count.
    """
    sides = []
    for name, count in (("old", None), ("new", 100), ("fewer", 50)):
        sides.append(looked(sweep(tmp_path / name, {"a": (0.5, 0.6, 0.55)})))
        if count:
            scored_on(sides[-1], a=count)
    for other in (sides[0], sides[2]):
        assert by_name(across(sides[1], other))["a"].gap.mean == pytest.approx(0.0)
