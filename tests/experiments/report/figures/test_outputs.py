"""Answers side by side."""

import json
from pathlib import Path

import pytest

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.outputs import DIFFERENT, marked, outputs
from attnlab.pages.html import Figure
from tests.experiments.report.tabled import drawn
from tests.experiments.synthetic import sweep


def answered(directory: Path, baseline: str = "additive") -> Figure | None:
    comparison = compare(collect(directory))
    return outputs(comparison, looks(comparison, baseline), 0)


@pytest.mark.quick
def test_equal_answers_stand_once_beside_source_and_reference(tmp_path: Path) -> None:
    """Two answer the first date rightly and one does not; the second all do."""
    text = drawn(answered(sweep(tmp_path)))
    first, second = text.split("<article>")[1:]
    assert "3 May &lt;1967&gt;" in first and "<dd>1967-05-03</dd>" in first
    assert first.count("<tr>") == 2 and first.count(">right<") == 1
    assert first.index(">additive<") < first.index(">location<")
    assert second.count("<tr>") == 1 and second.count('class="who"') == 3 and "with seed 0" in text


def test_many_different_answers_are_folded(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {f"v{place}": (0.9,) for place in range(12)}, claim=None)
    for place, path in enumerate(directory.glob("trials/*/seed0/translations.txt")):
        path.write_text(f"answer {place}\n")
        examples = {"outputs": path.name, "examples": []}
        path.with_name("examples.json").write_text(json.dumps(examples))
    text = drawn(answered(directory, "v0"))
    assert f"{12 - DIFFERENT} more answers" in text and "<dl>" not in text and "Marked" not in text
    assert text.count("<tr>") == 12


@pytest.mark.quick
@pytest.mark.parametrize(
    ("answer", "reference", "text"),
    [
        ("a b c", "a x c", "a <mark>b</mark> c"),
        ("1967-03-05", "1967-05-05", "1967-0<mark>3</mark>-05"),
        ("a <b>", "a <b>", "a &lt;b&gt;"),
        ("a", "", "a"),
        ("", "a", "<i>nothing</i>"),
    ],
)
def test_what_is_not_in_the_reference_is_marked(answer: str, reference: str, text: str) -> None:
    assert marked(answer, reference) == text


def test_nothing_is_shown_before_the_choice(tmp_path: Path) -> None:
    assert answered(sweep(tmp_path, final=False)) is None
