"""What a finished run shows, from a stand-in task: tables, curves, pictures of the first test
examples.
"""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab.analysis import results as module
from attnlab.analysis.results import LEGIBLE, draw, pictures_of_test, report, resampled, scores
from attnlab.records.items import FILE, Items
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.protocol import TextExample
from attnlab.tasks.tokens import TOKENS_STORED

Maps = dict[str, AttentionMap]


@pytest.fixture(autouse=True)
def three_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three examples, as users have it (see `tests/conftest.py`), and the maps of `Stand`."""
    monkeypatch.setattr(module, "PICTURED", 3)
    monkeypatch.setattr(module, "attention_maps", lambda task, *of: task.maps(*of))


class Stand:
    """Five sentences; two maps, of which one looks at the source."""

    across, inside = ("target", "source"), ("target_in", "target_in")
    between = staticmethod(lambda name: Stand.across if name.endswith("look") else Stand.inside)
    system = SimpleNamespace(looks=True, between=between)
    examples = "sentences"
    units = {"loss": "nats per target token", "exact": "share of sentences right as a whole"}
    units["confusion"] = "label"
    stored_labels = TOKENS_STORED

    def size(self, split: str) -> int:
        return 5

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        return [TextExample(f"s{one}", f"t{one}") for one in range(5)][:number]

    def evaluate(self, params: Any, split: str, rows: int = 0) -> dict[str, float]:
        return {"loss": 1.5, "perplexity": 4.5, "accuracy": 0.25}

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        known = {"bleu": 12.0, "chrf": 34.0, "exact": 0.2}
        return {**known, "bleu_signature": "nrefs:1|x", "chrf_signature": "nc:6"}, ["a"] * 5

    def model_inputs(self, example: TextExample) -> tuple[None, dict[str, list[str]]]:
        source, target = example
        written = [] if target is None else [target, "!", "</s>"]
        sides = {"source": [source, "</s>"], "target": written}
        return None, {**sides, "target_in": ["<s>", *written[:-1]]}

    def maps(self, params: Any, example: TextExample, chosen: Any) -> Maps:
        _, sides = self.model_inputs(example)
        cross = AttentionMap(np.full((2, 3, 2), 0.5), sides["target"], sides["source"])
        within = AttentionMap(np.eye(3)[None], sides["target_in"], sides["target_in"])
        return {"decoder_0/look": cross, "decoder_0/self": within}


@pytest.mark.quick
def test_every_measure_has_its_row_and_unit(capsys: pytest.CaptureFixture[str]) -> None:
    """Signatures stand beside the numbers they belong to, and a score that is a table is one of its
    own.
    """
    results, translations = scores(Stand(), None, "test")
    assert list(results)[:6] == ["split", "sentences", "loss", "perplexity", "accuracy", "bleu"]
    assert translations == ["a"] * 5 and json.dumps(results)
    assert results["sentences"] == 5 and results["decoding_seconds"] >= 0
    confusion = {"yes": {"yes": 3, "no": 1}, "no": {"yes": 0, "no": 2}}
    module.show("a run, test split", {**results, "confusion": confusion}, Stand.units)
    printed, _, table = capsys.readouterr().out.partition("\n\nconfusion\n")
    expected = [["label", "yes", "no"], ["yes", "3", "1"]]
    assert [line.split() for line in table.splitlines()][::2] == expected
    title, _, _, *rows = printed.splitlines()
    found = {row.split()[0]: row for row in rows}
    assert title == "a run, test split"
    named = {name for name in results if not name.endswith("_signature")}
    assert set(found) == named - {"split"}  # it stands in the title
    units = {**Stand.units, "bleu": "nrefs:1|x", "chrf": "nc:6"}
    assert all(unit in found[name] for name, unit in units.items() if name != "confusion")


def test_pictures_of_the_first_sentences_where_they_look_at_the_source(tmp_path: Path) -> None:
    paths = pictures_of_test(Stand(), None, tmp_path)
    assert [path.name for path in paths] == [
        f"test{n}{ending}" for n in range(3) for ending in ("-decoder_0-look.png", ".npz")
    ]
    drawn = draw(Stand(), None, TextExample("s", "t"), tmp_path / "deeper" / "0")
    assert list(drawn) == ["decoder_0/look", "decoder_0/self", "decoder_0/self-arcs", "arrays"]
    assert all(path.stat().st_size for path in drawn.values())
    assert drawn["decoder_0/self-arcs"].name == "0-decoder_0-self-arcs.png"
    assert np.load(drawn["arrays"])["decoder_0/look"].shape == (2, 3, 2)


def test_a_system_that_does_not_look_has_no_pictures(tmp_path: Path) -> None:
    class Blind(Stand):
        system = SimpleNamespace(looks=False)

    assert pictures_of_test(Blind(), None, tmp_path) == [] and not list(tmp_path.iterdir())


def test_a_task_of_single_texts_shows_how_they_look_at_themselves(tmp_path: Path) -> None:
    """No second text, no map between two: all are worth a look. Without answers nothing is
    timed.
    """

    class Alone(Stand):
        system = SimpleNamespace(looks=True, between=lambda name: ("source", "source"))

        def map_examples(self, split: str, number: int) -> list[TextExample]:
            return [TextExample("s")]

        def maps(self, params: Any, example: TextExample, chosen: Any) -> Maps:
            assert example.target is None
            labels = [example.source, "</s>"]
            return {"look": AttentionMap(np.eye(2)[None], labels, labels)}

        def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
            return {}, []

    paths = pictures_of_test(Alone(), None, tmp_path)
    assert [path.name for path in paths] == ["test0-look.png", "test0-look-arcs.png", "test0.npz"]
    assert np.load(paths[2])["target_tokens"].size == 0
    results, outputs = scores(Alone(), None, "test")
    assert outputs == []
    assert list(results) == ["split", "sentences", "loss", "perplexity", "accuracy"]


def test_a_map_nobody_could_read_is_kept_but_not_drawn(tmp_path: Path) -> None:
    class Long(Stand):
        def maps(self, params: Any, example: TextExample, chosen: Any) -> Maps:
            labels = ["a"] * (LEGIBLE + 1)
            return {"look": AttentionMap(np.eye(len(labels))[None], labels, labels)}

    paths = draw(Long(), None, TextExample("s"), tmp_path / "one")
    assert list(paths) == ["arrays"]
    assert np.load(paths["arrays"])["look"].shape == (1, LEGIBLE + 1, LEGIBLE + 1)


def test_a_picture_that_fails_costs_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scores are on the disk before anything is drawn; the failure is a warning, and gone when
    drawing works again.
    """
    scored = tmp_path / "results.json"
    (tmp_path / FILE).write_bytes(b"old")

    class Shy(Stand):
        named = SimpleNamespace(name="stand")
        config = SimpleNamespace(system=named, data=named)
        outputs = "translations.txt"

        def maps(self, params: Any, example: TextExample, chosen: Any) -> Maps:
            # one of an earlier evaluation
            assert json.loads(scored.read_text())["bleu"] == 12.0 and not (tmp_path / FILE).exists()
            raise ValueError("no such\nmap")

    best = ({"w": np.zeros(3)}, 7)
    updates: Any = SimpleNamespace(config=Shy.config, best_params=lambda task, workdir: best)
    report(updates, Shy(), tmp_path)
    err = capsys.readouterr().err
    assert err == "warning: pictures not drawn, maps: ValueError: no such map\n"
    assert (tmp_path / "pictures_failed.txt").read_text() == "maps: ValueError: no such map\n"
    assert json.loads(scored.read_text())["step"] == 7 and (tmp_path / "curves.png").exists()
    # what the first lines of the outputs answer
    kept = json.loads((tmp_path / "examples.json").read_text())
    assert kept["outputs"] == "translations.txt"
    assert len((tmp_path / "translations.txt").read_text().splitlines()) == 5
    assert kept["examples"] == [{"source": f"s{one}", "target": f"t{one}"} for one in range(5)]
    report(updates, type("Able", (Shy,), {"maps": Stand.maps})(), tmp_path)
    assert capsys.readouterr().err == "" and not (tmp_path / "pictures_failed.txt").exists()


def test_a_score_that_does_not_come_out_of_its_examples_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task with nothing to draw from, or nothing that agrees, leaves no file."""
    rows = {"accuracy": ("ratio", [[1, 4], [1, 4]]), "exact": ("ratio", [[1, 1]] * 2)}

    class Itemised(Stand):
        def items(self, params: Any, split: str, outputs: list[str]) -> Items | None:
            assert outputs == ["a"] * 5
            return Items.of(rows)

    results, outputs = scores(Itemised(), None, "test")
    items = resampled(Itemised(), None, "test", outputs, results)
    assert items is not None and set(items.rules) == {"accuracy"}
    assert items.score("accuracy") == 0.25
    words = "warning: exact is 0.2, its examples give 1.0; it is left out of items.npz\n"
    assert capsys.readouterr().err == words
    del rows["accuracy"]
    for task in (Itemised(), Stand()):
        assert resampled(task, None, "test", outputs, results) is None


def test_curves_of_a_metric_stream(tmp_path: Path) -> None:
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step, split in itertools.product((1, 2, 3), ("train", "valid")):
            file.write(json.dumps({"step": step, "split": split, "loss": 1 / step}) + "\n")
    path = module.curves(tmp_path)
    assert path == tmp_path / "curves.png" and path.read_bytes().startswith(b"\x89PNG")
