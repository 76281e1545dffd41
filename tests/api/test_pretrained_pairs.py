"""T5 and BART of others are loaded with one tokenizer for both sides, used, tuned and written back."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import attnlab
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.errors import UserError
from tests.commands.tiny import run_command, train
from tests.weights import models

FOLDERS = {"t5": models.t5, "bart": models.bart}
SMALL: dict[str, Any] = {"data": "grammar", "data.examples": 20, "data.valid": 4, "data.test": 4}
# up to 266 tokens, as these models write them, decoding would be nearly all of the work
SMALL |= {"batch.max_length": 64, "batch.buckets": (64,), "decoding.batch": 4}
SMALL |= {"decoding.method": "greedy", "decoding.max_ratio": 0.5, "decoding.max_extra": 2}


def adopted(folder: Path) -> Vocabulary:
    return Vocabulary.train([], "tokenizer", file=str(folder))


def test_a_decoder_reads_first_what_its_model_says(tmp_path: Path) -> None:
    """T5 padding, BART the end; BART's texts begin with <s>; sentinels are reserved."""
    t5 = adopted(models.t5(tmp_path / "t5"))
    first = t5.special.reserved[0]
    assert t5.special == Special(0, 0, 1, 2, tuple(range(first, first + 6)))
    assert t5.tokens(reversed(t5.special.reserved)) == models.SENTINELS
    bart = adopted(models.bart(tmp_path / "bart"))
    assert bart.special == Special(1, 2, 2, 3, (), front=(0,))
    for vocabulary, begin in ((t5, ()), (bart, (0,))):
        ids = vocabulary.packed(["old dogs"], vocabulary.special.front)[0]
        assert (*ids[: len(begin)], ids[-1]) == (*begin, vocabulary.special.eos)
        assert vocabulary.decode(ids) == "old dogs"
        vocabulary.save(tmp_path / "kept.json")
        assert Vocabulary.load(tmp_path / "kept.json").special == vocabulary.special


@pytest.mark.parametrize("name", ["t5", pytest.param("bart", marks=pytest.mark.full)])
def test_what_is_loaded_and_saved_is_what_it_was(name: str, tmp_path: Path) -> None:
    folder = FOLDERS[name](tmp_path / "in")
    run = attnlab.load_pretrained(folder, SMALL)
    assert run.generate(["the old dog"]) == run.generate(["the old dog"])
    assert run.evaluate("valid")["loss"] > 1.0
    sides = {path.split("/")[0].split("_")[0] for path in run.maps("the old dog")}
    assert sides == {"encoder", "decoder"}
    attnlab.save_pretrained(run, tmp_path / "out")
    before, after = (load_file(tmp_path / one / "model.safetensors") for one in ("in", "out"))
    np.testing.assert_equal(after, before)
    told, ours = (json.loads((tmp_path / one / "config.json").read_text()) for one in ("in", "out"))
    ids = ("vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id", "bos_token_id")
    assert {key: told.get(key) for key in ids} == {key: ours[key] for key in ids}
    assert adopted(tmp_path / "out").special == adopted(folder).special


@pytest.mark.full
def test_tune_export(tmp_path: Path) -> None:
    """One step from a folder, and a folder again that is read as the same model."""
    folder = models.t5(tmp_path / "in", "pairs/t5_gated")
    changes = [f"{key}={value}" for key, value in {**SMALL, "batch.buckets": 64}.items()]
    changes += ["training.steps=1", "schedule.warmup=0"]
    workdir = tmp_path / "run"
    assert run_command(train(f"pretrained.py:{folder}", workdir, *changes)).code == 0
    scores = json.loads((workdir / "results.json").read_text())
    assert "rougeL" in json.dumps(scores)
    ended = run_command(["export", str(workdir), "--to=transformers", f"--out={tmp_path / 'out'}"])
    assert "transformers.T5ForConditionalGeneration" in ended.out
    again = attnlab.load_pretrained(tmp_path / "out", SMALL)
    jax.tree.map(np.testing.assert_array_equal, again.params, attnlab.load(workdir).params)


def test_two_vocabularies_are_no_folder(tmp_path: Path) -> None:
    folder = models.t5(tmp_path / "in")
    changes: dict[str, Any] = {**SMALL, "vocabulary.shared": False}
    run = attnlab.load_pretrained(folder, changes)
    with pytest.raises(UserError, match=r"vocabularies of their own.*vocabulary.shared=true"):
        attnlab.save_pretrained(run, tmp_path / "out", model_type="t5")
