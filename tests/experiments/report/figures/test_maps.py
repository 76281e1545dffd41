"""Attention pictures: which, and how many a page can carry."""

import re
from pathlib import Path

import pytest

from attnlab.experiments.report import collect, compare
from attnlab.experiments.report.figures import maps
from attnlab.experiments.report.figures.colours import looks
from tests.experiments.report.tabled import drawn
from tests.experiments.synthetic import PNG, sweep


def pictures(directory: Path, baseline: str) -> str:
    comparison = compare(collect(directory))
    return drawn(maps.maps(comparison, looks(comparison, baseline), 0))


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
    monkeypatch.setattr(maps, "BYTES", 13 * len(PNG))  # twelve first maps and one more
    text = pictures(directory, "v14")
    assert text.count("<article") == 12 and text.count("<img ") == 13
    assert "Of 12 variants only the first pictures are here" in text
    monkeypatch.setattr(maps, "BYTES", 1)  # one picture that is too large by itself
    text = pictures(directory, "v14")
    assert re.findall(r"<h3>(.*?)</h3>", text) == ["v14"] and text.count("<img ") == 1
