"""What trials answered, from the files of every task."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.report.answers import MOST, Answer, answers
from tests.refusals import check_refused


def run(
    folder: Path, outputs: str, lines: list[str], examples: list[dict[str, Any]] | None
) -> Path:
    (folder / outputs).write_text("".join(f"{line}\n" for line in lines))
    if examples is not None:
        stored = {"outputs": outputs, "examples": examples}
        (folder / "examples.json").write_text(json.dumps(stored))
    return folder


ALONE: dict[str, Any] = {"source": "a", "target": None}
PAIR: dict[str, Any] = {"source": "a", "target": "b"}


@pytest.mark.quick
def test_every_task(tmp_path: Path) -> None:
    """The last without records of the examples."""
    cases: tuple[tuple[str, list[str], Any, list[Answer]], ...] = (
        ("translations.txt", ["x", ""], [PAIR] * 2, [Answer("a", "b", "x"), Answer("a", "b", "")]),
        ("predictions.tsv", ["yes\tno"], [ALONE], [Answer("a", "yes", "no")]),
        ("predictions.tsv", ["yes\tno"], [PAIR], [Answer("a\nb", "yes", "no")]),
        ("own.txt", ["x", "y"], [PAIR], [Answer("a", "b", "x"), Answer("", "", "y")]),
        ("translations.txt", ["x"], None, []),
    )
    for place, (outputs, lines, examples, expected) in enumerate(cases):
        (folder := tmp_path / str(place)).mkdir()
        assert list(answers(run(folder, outputs, lines, examples))) == expected


def test_the_first_lines_only_and_a_damaged_file_is_told(tmp_path: Path) -> None:
    assert len(answers(run(tmp_path, "translations.txt", ["x"] * 1000, []))) == MOST
    (tmp_path / "examples.json").write_text('{"outputs": 3, "examples": []}')
    check_refused(r"examples.json is damaged .*outputs", answers, tmp_path)
