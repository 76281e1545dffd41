"""Answers side by side. Attention pictures: which, and how many a page can carry."""

import json
import re
from pathlib import Path

import pytest

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.figures import examples
from attnlab.experiments.report.figures.colours import looks
from attnlab.experiments.report.figures.examples import DIFFERENT, marked, outputs
from attnlab.pages.html import Figure
from tests.experiments.report.tabled import drawn
from tests.experiments.synthetic import PNG, sweep


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


def pictures(directory: Path, baseline: str) -> str:
    comparison = compare(collect(directory))
    return drawn(examples.maps(comparison, looks(comparison, baseline), 0))


@pytest.mark.quick
def test_only_the_first_example_is_open(tmp_path: Path) -> None:
    text = pictures(sweep(tmp_path), "additive")
    assert text.count("<article") == 3 and text.count("<img ") == 9
    block, *_ = text.split("<article")[1:]
    assert 'alt="additive: decoder_0-cross_attention, example 1"' in block.partition("<details>")[0]
    assert re.findall(r"<summary>(.*?)</summary>", block) == ["self-attention", "example 2"]
    assert "Left out" not in text


@pytest.mark.quick
def test_the_best_and_the_baseline_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {f"v{place}": (0.9 - 0.01 * place,) for place in range(15)}
    directory = sweep(tmp_path, scores, claim=None)
    text = pictures(directory, "v14")
    assert re.findall(r"<h3>(.*?)</h3>", text) == [*(f"v{place}" for place in range(11)), "v14"]
    assert "Left out, as a page cannot carry all: v11, v12, v13." in text and "maps/" in text
    monkeypatch.setattr(examples, "BYTES", 13 * len(PNG))  # twelve first maps and one more
    text = pictures(directory, "v14")
    assert text.count("<article") == 12 and text.count("<img ") == 13
    assert "Of 12 variants only the first pictures are here" in text
    monkeypatch.setattr(examples, "BYTES", 1)  # one picture that is too large by itself
    text = pictures(directory, "v14")
    assert re.findall(r"<h3>(.*?)</h3>", text) == ["v14"] and text.count("<img ") == 1
