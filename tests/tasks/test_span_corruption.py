"""A split is always corrupted alike and has all its texts; tuning goes on from pretraining on them."""

import json
from pathlib import Path

import numpy as np
import pytest

import attnlab
from attnlab import config as configs
from attnlab.commands import main
from attnlab.errors import UserError
from tests.refusals import check_refused
from tests.tasks.tiny import check_items, loader, noisy

SMALL = [
    *("data.of.examples=60", "data.of.valid=12", "data.of.test=12", "system.width=16"),
    *("system.hidden=16", "system.layers=1", "batch.size=8", "decoding.method=greedy"),
    "decoding.batch=8",
]


task = loader("span_corruption.py:t5", SMALL)


def test_a_split_is_always_corrupted_alike_and_has_all_its_texts() -> None:
    one, other = task(), task("seed=3")
    sides = [
        [x.of_split("valid").packed(side) for side in ("source", "target")] for x in (one, other)
    ]
    for mine, theirs in zip(*sides, strict=True):
        np.testing.assert_array_equal(mine.ids, theirs.ids)
    ids = one.data.ids["valid"].ids
    words = [index for index in ids.tolist() if index != one.special.eos]
    kept = [
        index
        for side in sides[0]
        for index in side.ids.tolist()
        if index != one.special.eos and index not in one.sentinels
    ]
    assert sorted(kept) == sorted(words)
    assert one.size("valid") == -(-len(ids) // one.raw)
    assert one.counts("valid") == {"tokens": len(sides[0][1].ids)}


def test_rows_are_scored_one_by_one_and_shown_with_sentinels() -> None:
    one = task()
    params = noisy(one)
    check_items(one, params, "valid", {"loss", "perplexity", "accuracy"})
    (example,) = one.map_examples("valid", 1)
    assert example.source.count("<extra_id_0>") == example.target.count("<extra_id_0>") == 1
    again = one.encoded([(example.source, example.target)])
    for side in ("source", "target"):  # what is shown can be typed
        np.testing.assert_array_equal(again.packed(side)[0], one.of_split("valid").packed(side)[0])
    _, sides = one.model_inputs(example)
    assert set(sides) >= {"source", "target"}
    check_refused(r"nothing is taken out; write <extra_id_0>", one.examples_from_lines, ["a dog"])
    with pytest.raises(UserError, match=r"<extra_id_8>: the vocabulary has 8 sentinels"):
        one.examples_from_lines(["a <extra_id_8>"])


@pytest.mark.full
def test_pretraining_then_tuning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On texts first, then from there on pairs: all weights and the vocabulary are taken."""
    workdir, tuned = tmp_path / "corrupted", tmp_path / "tuned"
    steps = ["training.steps=2", "schedule.warmup=0", "training.log_every=1"]
    short = ["decoding.max_ratio=0.5", "decoding.max_extra=2"]
    words = [f"--config.{one}" for one in [*SMALL, *steps, *short]]
    config = "--config=configs/span_corruption.py:t5"
    assert main(["train", config, f"--workdir={workdir}", *words]) == 0
    (best,) = attnlab.load(workdir).respond(["the <extra_id_0> sees"])[0]
    assert best.score < 0
    capsys.readouterr()
    pairs = [one.replace("data.of.", "data.") for one in [*SMALL, *steps]]
    vocabulary = configs.load("configs/span_corruption.py:t5", []).vocabulary
    pairs += ["batch.buckets=32", *short]
    for name in ("kind", "size", "reserved"):
        pairs.append(f"vocabulary.{name}={getattr(vocabulary, name)}")
    words = [f"--config.{one}" for one in ["data=grammar", *pairs]]
    config = "--config=configs/text_to_text.py:t5"
    folder = f"--config.pretrained.folder={workdir}"
    assert main(["train", config, folder, f"--workdir={tuned}", *words]) == 0
    assert "drawn" not in capsys.readouterr().out
    results = json.loads((tuned / "results.json").read_text())
    assert "rougeL" in json.dumps(results)
    shared = [(one / "vocabulary" / "shared.json").read_bytes() for one in (workdir, tuned)]
    assert shared[0] == shared[1]
