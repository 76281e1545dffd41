"""What tasks of pairs of texts share: their vocabularies, what they tell of their data, and every
complaint about a config.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.config import find_file
from attnlab.data.corpus import load_vocabularies
from attnlab.data.vocabulary import EOS
from attnlab.decoding import Decoded
from attnlab.errors import UserError
from attnlab.tasks.pairs import build_system
from attnlab.tasks.translation import Translation
from attnlab.training.drawing import first_params
from tests.tasks.tiny import load, looked


@pytest.fixture(scope="module")
def plain() -> Translation:
    """A task that nobody trains."""
    return load("rnnsearch")


def test_notes_tell_what_is_left_out_and_unknown(plain: Translation) -> None:
    notes = plain.notes(plain.batches(1))
    letters = sum(len(source) + 1 for source, _ in plain.data.pairs["train"])
    assert (
        notes[0]
        == f"train: 64 pairs, source {letters} tokens (0 unknown), target {letters} tokens (0"
        " unknown)"
    )
    assert [note.split(":")[0] for note in notes] == ["train", "valid", "test"]
    task = load("rnnsearch", "batch.max_length=5", "batch.buckets=5")
    longer = sum(len(source) + 1 > 5 for source, _ in task.data.pairs["train"])
    assert task.notes(task.batches(1))[3:] == [
        f"train: {longer} pairs longer than batch.max_length=5 tokens are left out, none is cut"
    ]
    assert task.longer_than(5, ["abcd", "abcde", "", "abcdea"]) == [1, 3]


def test_each_side_has_its_vocabulary_and_the_run_keeps_both(tmp_path: Path) -> None:
    """Lower case to upper case, nothing shared: the same ids read otherwise on the two sides."""
    task = load("transformer", "vocabulary.shared=false", "system.share=output")
    params = first_params(task.init, jax.random.key(0))
    _, tokens = looked(task, params, "abc", "CBA")
    assert tokens == {
        "source": [*"abc", "</s>"],
        "target": [*"CBA", "</s>"],
        "target_in": ["<s>", *"CBA"],
    }
    assert not any(
        set(task.text(best[0])) & set("abcde") for best in task.translate(params, ["abcde", "e"])
    )
    assert not Translation.saved(tmp_path)
    task.save(tmp_path)
    assert Translation.saved(tmp_path)
    source, target = load_vocabularies(tmp_path)
    assert (source.decode([4, 5]), target.decode([4, 5])) == tuple(
        one.decode([4, 5]) for one in task.vocabularies
    )
    with pytest.raises(UserError, match="has lost its vocabulary"):
        Translation.load(task.config, tmp_path / "elsewhere", ())


def test_a_text_survives_the_vocabulary(plain: Translation) -> None:
    ids = np.append(plain.vocabularies[1].encode_all(["bead"])[0], EOS)
    assert plain.text(Decoded(ids, 0.0, 0.0)) == "bead"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"system.attention.score.hidden": 0}, "hidden"),
        ({"decoding.beam": 2, "decoding.n_best": 3}, "n_best=3 is more than decoding.beam=2"),
    ],
)
def test_a_bad_config_fails_before_data_is_read(
    change: dict[str, Any], words: str, plain: Translation
) -> None:
    config = ConfigDict(plain.config.to_dict())
    config.update_from_flattened_dict(change)
    with pytest.raises(UserError, match=words):
        Translation.check(config)
    Translation.check(plain.config)


def test_a_slot_is_checked_against_what_the_mechanism_declares(
    plain: Translation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnlab.attention.mechanisms.single import Single
    from attnlab.attention.protocol import Capabilities

    monkeypatch.setattr(Single, "capabilities", Capabilities(roles=frozenset({"self"})))
    with pytest.raises(
        UserError,
        match="system.attention=single: Single does not support the role 'cross'; it offers 'self'",
    ):
        build_system(plain.config, 9, 9)


@pytest.mark.parametrize(
    "name", runpy.run_path(str(find_file("configs/translation.py", "config file")))["_SYSTEMS"]
)
def test_every_config_is_complete(name: str) -> None:
    config = configs.load(f"configs/translation.py:{name}")
    Translation.check(config)
    published = name.endswith(("_paper", "_base"))
    assert config.task == "translation" and (config.training.steps > 10_000) == published
    assert (config.training.output_bias == "zeros") == (
        published or name == "transformer"
    )  # whose scores have no bias
