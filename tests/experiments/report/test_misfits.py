"""Finished records that no longer fit together are named at the head of the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.report import document
from attnlab.records.digests import write_digests
from attnlab.records.items import Items
from tests.experiments.synthetic import TIME, lines, sweep, workdir

SCORES = {"a": (0.9, 0.8, 0.7), "b": (0.5, 0.4, 0.3)}


def finished(directory: Path, kept: bool = True) -> Path:
    """A sweep whose trials have items; digests and looks too, unless it is of an earlier version."""
    sweep(directory, SCORES)
    looks: list[dict[str, Any]] = [event("choice", chosen={})]
    for variant, values in SCORES.items():
        for seed, value in enumerate(values):
            folder = workdir(directory, variant, seed)
            rows = np.array([[1, 1]] * round(10 * value) + [[0, 1]] * round(10 - 10 * value))
            Items.of({"exact": ("ratio", rows)}).write(folder)
            if kept:
                write_digests(folder, (folder / "results.json").read_text())
                looks.append(event("test", candidate=folder.parent.name, scored=[seed]))
    if kept:
        lines(directory / "looks.jsonl", looks)
    return directory


def event(kind: str, **own: Any) -> dict[str, Any]:
    return {"event": kind, "time": TIME, "plan": "0" * 12, "seeds": [0, 1, 2], "code": None, **own}


def edited(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def copied(directory: Path, *names: str) -> None:
    """The files of seed 0 of a variant in place of those of seed 1."""
    one, other = workdir(directory, "a", 0), workdir(directory, "a", 1)
    for name in names or [path.name for path in one.iterdir() if path.is_file()]:
        shutil.copy(one / name, other / name)


def without_looks(directory: Path) -> None:
    path = directory / "looks.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


Damage = Callable[[Path], Any]
RESULTS: Callable[[Path], Path] = lambda one: workdir(one, "a", 1) / "results.json"
VALID: Callable[[Path], Path] = lambda one: workdir(one, "a", 1) / "valid.json"
# What is done to the folder of a sweep, what is said of one with digests, and of one without.
CASES: dict[str, tuple[Damage, str, str]] = {
    "a score": (
        lambda one: edited(RESULTS(one), exact=0.95),
        "exact is 0.95 in results.json and 0.8 by items.npz",
        "exact is 0.95 in results.json and 0.8 by items.npz",
    ),
    "a score without items": (
        lambda one: edited(RESULTS(one), loss=0.1),
        "results.json is not what the run left",
        "",
    ),
    "a split": (
        lambda one: edited(RESULTS(one), split="valid"),
        "the scores of the test split are of 'valid'",
        "the scores of the test split are of 'valid'",
    ),
    "a step": (
        lambda one: edited(RESULTS(one), step=6),
        "results.json is of step 6, the parameters that were kept of 12",
        "results.json is of step 6, the parameters that were kept of 12",
    ),
    "the score that chooses": (
        lambda one: edited(VALID(one), loss=0.5),
        "loss is 0.5 in valid.json and 1.2 in metrics.jsonl",
        "loss is 0.5 in valid.json and 1.2 in metrics.jsonl",
    ),
    "items": (
        lambda one: (workdir(one, "a", 1) / "items.npz").unlink(),
        "items.npz is not what the run left",
        "",
    ),
    "results of another seed": (
        lambda one: copied(one, "results.json", "items.npz"),
        "results.json is not what the run left",
        "",
    ),
    "another seed": (
        copied,
        "it is a copy of a-0a1b2c3d/seed0: same losses and times",
        "it is a copy of a-0a1b2c3d/seed0: same losses and times",
    ),
    "a manifest": (
        lambda one: copied(one, "manifest.json"),
        "manifest.json is of seed 0",
        "manifest.json is of seed 0",
    ),
    "digests": (
        lambda one: (workdir(one, "a", 1) / "digests.json").unlink(missing_ok=True),
        "digests.json is missing, which the other trials have",
        "",
    ),
    "a look": (
        lambda one: without_looks(one) if (one / "looks.jsonl").exists() else None,
        "looks.jsonl does not know that it was scored on the test split",
        "",
    ),
    "all looks": (
        lambda one: (one / "looks.jsonl").unlink(missing_ok=True),
        "looks.jsonl does not know that it was scored on the test split",
        "",
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("kept", [True, False])
def test_records_that_fit_are_left_alone(tmp_path: Path, kept: bool) -> None:
    found = gather(finished(tmp_path / "sweep", kept))
    assert not [one for one in found.warnings if one.kind == "records"]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_stands_at_the_head(tmp_path: Path, name: str, kept: bool) -> None:
    damage, now, before = CASES[name]
    directory = finished(tmp_path / "sweep", kept)
    damage(directory)
    found = gather(directory)
    told = [one.text for one in found.warnings if one.kind == "records"]
    expected = now if kept else before
    assert any(expected in text for text in told) if expected else not told
    if expected:
        assert found.warnings[0].kind == "records"
        assert document(found).splitlines()[2].startswith("* **Warning:** Records do not fit")
