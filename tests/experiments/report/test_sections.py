"""One list of the parts of a report, which the page, the text and the terminal walk."""

import re
from pathlib import Path

import pytest

from attnlab.experiments.report import report
from attnlab.pages.html import literal
from attnlab.pages.tables import Table
from tests.experiments.synthetic import sweep

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
