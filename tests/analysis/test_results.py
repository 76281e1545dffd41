"""What a finished run shows, from a stand-in task: table, curves, pictures of the first test sentences."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab.analysis.results import PICTURED, alignments, curves, draw, scores, show
from attnlab.systems.protocol import AttentionMap


class Stand:
    """Five sentences; two maps, of which one looks at the source."""

    system = SimpleNamespace(
        needs={"attention": None}, between=lambda name: ("target", "source") if name.endswith("look") else ("target_in", "target_in")
    )
    data = SimpleNamespace(pairs={"test": [(f"s{number}", f"t{number}") for number in range(5)]})

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        return {"loss": 1.5, "perplexity": 4.5, "accuracy": 0.25}

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        return {"bleu": 12.0, "chrf": 34.0, "exact": 0.2, "bleu_signature": "nrefs:1|x", "chrf_signature": "nc:6"}, ["a"] * 5

    def maps(self, params: Any, source: str, target: str) -> tuple[dict[str, AttentionMap], dict[str, list[str]]]:
        tokens = {"source": [source, "</s>"], "target": [target, "!", "</s>"], "target_in": ["<s>", target, "!"]}
        cross = AttentionMap(np.full((2, 3, 2), 0.5))  # type: ignore[arg-type]
        return {"decoder_0/look": cross, "decoder_0/self": AttentionMap(np.eye(3)[None], "target_in", "target_in")}, tokens  # type: ignore[arg-type]


def test_scores_join_both_kinds_and_count() -> None:
    results, translations = scores(Stand(), None, "test")
    assert list(results)[:6] == ["split", "sentences", "loss", "perplexity", "accuracy", "bleu"] and translations == ["a"] * 5
    assert results["sentences"] == 5 and results["decoding_seconds"] >= 0 and json.dumps(results)


@pytest.mark.quick
def test_every_measure_has_its_row_and_unit(capsys: pytest.CaptureFixture[str]) -> None:
    """Signatures stand beside the numbers they belong to, and every unit belongs to a measure that exists."""
    results, _ = scores(Stand(), None, "test")
    show("a run, test split", results)
    title, _, _, *rows = capsys.readouterr().out.splitlines()
    found = {row.split()[0]: row for row in rows}
    assert title == "a run, test split" and set(found) == {name for name in results if not name.endswith("_signature")}
    for name, unit in {"loss": "nats per target token", "bleu": "nrefs:1|x", "chrf": "nc:6", "exact": "share of sentences"}.items():
        assert unit in found[name]


def test_pictures_of_the_first_sentences_where_they_look_at_the_source(tmp_path: Path) -> None:
    paths = alignments(Stand(), None, tmp_path)
    assert [path.name for path in paths] == [f"test{n}{ending}" for n in range(PICTURED) for ending in ("-decoder_0-look.png", ".npz")]
    drawn = draw(Stand(), None, "s", "t", tmp_path / "deeper" / "0")
    assert list(drawn) == ["decoder_0/look", "decoder_0/self", "arrays"] and all(path.stat().st_size for path in drawn.values())
    assert np.load(drawn["arrays"])["decoder_0/look"].shape == (2, 3, 2)


def test_a_system_that_does_not_look_has_no_pictures(tmp_path: Path) -> None:
    class Blind(Stand):
        system = SimpleNamespace(needs={})

    assert alignments(Blind(), None, tmp_path) == [] and not list(tmp_path.iterdir())


def test_curves_of_a_metric_stream(tmp_path: Path) -> None:
    lines = [{"step": step, "split": split, "loss": 1 / step} for step in (1, 2, 3) for split in ("train", "valid")]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert curves(tmp_path).read_bytes().startswith(b"\x89PNG") and curves(tmp_path) == tmp_path / "curves.png"
