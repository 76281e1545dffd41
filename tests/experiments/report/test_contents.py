"""What a report says in sentences: extent, verdict, and what is still to come; and the one list of
its parts, which the page, the text and the terminal walk.
"""

import math
import re
from pathlib import Path

import pytest

from attnlab.experiments.report import report
from attnlab.experiments.report.contents import gather
from attnlab.pages.html import literal
from attnlab.pages.tables import Table
from tests.experiments.synthetic import SCORES, sweep, workdir

TITLES = (
    "What the claim says",
    "exact by seed, test split",
    "exact on the test split, higher is better",
    "All 2 measures on the test split",
    "Validation beside test",
    "Learning curves",
    "Search",
    "Importance of tuned settings",
    "Answers side by side",
    "Attention",
    "What is compared",
    "Tuning, on the validation split",
    "What it took",
    "Trials",
    "Environment",
)


@pytest.mark.quick
def test_the_page_has_all_parts_and_the_text_all_tables_in_one_order(tmp_path: Path) -> None:
    peaks = {0.001 * place: 0.1 * place for place in range(1, 9)}
    contents = report.write(sweep(tmp_path, tuned=peaks))
    assert tuple(part.title for _, part in contents.parts) == TITLES
    page, text = ((tmp_path / name).read_text() for name in ("report.html", "report.md"))
    assert re.findall(r"<h2>(.*?)</h2>", page) == [literal(title) for title in TITLES]
    tables = [part.title for _, part in contents.parts if isinstance(part, Table)]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == tables


def test_a_sweep_with_losses(tmp_path: Path) -> None:
    scores = {**SCORES, "general": (0.9, math.nan, math.nan, 0.9)}
    contents = gather(sweep(tmp_path, scores, tuned={0.001: 1.0, 0.003: 0.0}))
    assert contents.extent.endswith("24 trials: 20 done, 4 diverged") and contents.unfinished == ""


def test_what_is_still_to_come(tmp_path: Path) -> None:
    directory = sweep(tmp_path, final=False)
    words = "Unfinished: all trials have settled, and the choice is not made yet"
    assert gather(directory).unfinished.startswith(words)
    (workdir(directory, "general", 1) / "events.jsonl").unlink()
    contents = gather(directory)
    assert contents.unfinished.startswith("Unfinished: 1 of 12 trials have not settled")
    assert contents.extent.endswith("11 done, 1 pending")
    frozen = sweep(tmp_path / "frozen")
    (workdir(frozen, "general", 1) / "results.json").unlink()
    contents = gather(frozen)
    assert "not every chosen trial is scored" in contents.unfinished
    assert contents.comparison.rows[1].missing == ("seed 1 not scored yet",)
