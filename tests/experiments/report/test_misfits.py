"""Finished records that no longer fit together are named at the head of the report."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.report import document
from attnlab.records.items import Items
from attnlab.records.sealed import write_results
from tests.experiments.synthetic import edit, lines, look, sweep, workdir

SCORES = {"a": (0.9, 0.8, 0.7), "b": (0.5, 0.4, 0.3)}


def finished(directory: Path, kept: bool = True) -> Path:
    """A sweep whose trials have items; digests and looks too, unless it is of version 1.
    Not all is held equal in it, which is a lesser warning.
    """
    sweep(directory, SCORES, settings={"b": {"training.clip": 2.0}})
    looks: list[dict[str, Any]] = [look("choice", chosen={})]
    for variant, values in SCORES.items():
        for seed, value in enumerate(values):
            folder = workdir(directory, variant, seed)
            rows = np.array([[1, 1]] * round(10 * value) + [[0, 1]] * round(10 - 10 * value))
            nats = np.array([[150.0, 1.0]] * len(rows))  # a perplexity that no report reads
            measures = {"exact": ("ratio", rows), "perplexity": ("perplexity", nats)}
            Items.of(measures).write(folder)
            edit(folder / "results.json", perplexity=math.exp(150))
            if kept:
                edit(folder / "manifest.json", version=2)
                write_results(folder, (folder / "results.json").read_text())
                looks.append(look(candidate=folder.parent.name, scored=[seed]))
    if kept:
        lines(directory / "looks.jsonl", looks)
    return directory


def damaged(directory: Path, file: str, change: Any) -> None:
    """A file of seed 1 with other values, without one (None), or in place of which seed 0's stands
    (COPY); `looks.jsonl` without all lines but two, or without any.
    """
    other, source = workdir(directory, "a", 1), workdir(directory, "a", 0)
    names = [one.name for one in source.iterdir() if one.is_file()] if file == "*" else file.split()
    for name in names:
        path = directory / name if name == "looks.jsonl" else other / name
        if change == COPY:
            shutil.copy(source / name, path)
        elif change is None:
            path.unlink(missing_ok=True)
        elif isinstance(change, int):
            if path.exists():
                path.write_text("".join(path.read_text().splitlines(keepends=True)[:change]))
        else:
            edit(path, **change)


COPY, LEFT = "copy", "is not what the run left"
COPIED = "it is a copy of a-0a1b2c3d/seed0: same losses and times"
UNKNOWN = "looks.jsonl does not know that it was scored on the test split"
# File, damage, what is said, and whether that is said of a sweep without digests and looks too.
CASES: tuple[tuple[str, Any, str, bool], ...] = (
    ("results.json", {"exact": 0.95}, "exact is 0.95 in results.json and 0.8 by items.npz", True),
    ("results.json", {"loss": 0.1}, f"results.json {LEFT}", False),
    ("results.json", {"perplexity": 3.0}, "perplexity is 3 in results.json and 1.39371e+65", True),
    ("results.json", {"split": "valid"}, "scores of the test split are of 'valid'", True),
    ("results.json", {"step": 6}, "step 6, the parameters that were kept of 12", True),
    ("valid.json", {"loss": 0.5}, "loss is 0.5 in valid.json and 1.2 in metrics.jsonl", True),
    ("items.npz", None, f"items.npz {LEFT}", False),
    ("results.json items.npz", COPY, f"results.json {LEFT}", False),
    ("*", COPY, COPIED, True),
    ("manifest.json", COPY, "manifest.json is of seed 0", True),
    ("digests.json", None, "digests.json is missing (a-0a1b2c3d/seed1)", False),
    ("looks.jsonl", 2, f"{UNKNOWN} (a-0a1b2c3d/seed1, ", False),
    ("looks.jsonl", None, f"{UNKNOWN} (a-0a1b2c3d/seed0, ", False),
)


@pytest.mark.quick
@pytest.mark.parametrize("kept", [True, False])
def test_records_that_fit_are_left_alone(tmp_path: Path, kept: bool) -> None:
    found = gather(finished(tmp_path / "sweep", kept))
    assert not [one for one in found.warnings if one.kind == "records"]


@pytest.mark.parametrize(("file", "change", "said", "before"), CASES)
def test_what_does_not_fit_stands_at_the_head(
    tmp_path: Path, file: str, change: Any, said: str, before: bool
) -> None:
    for kept in (True, False):
        directory = finished(tmp_path / str(kept), kept)
        damaged(directory, file, change)
        found = gather(directory)
        told = [one.text for one in found.warnings if one.kind == "records"]
        assert any(said in text for text in told) if kept or before else not told
        assert [one.kind for one in found.warnings] == ["records"] * len(told) + ["held equal"]
        if told:
            assert document(found).splitlines()[2].startswith("* **Warning:** Records do not fit")
