"""What a run learns is kept in files that show their damage; vocabularies may be inherited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data.corpus import Corpus
from attnlab.data.learned import (
    Learned,
    VocabularySettings,
    has_learned,
    inherited_vocabulary,
    load_vocabularies,
    moments,
)
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

WORDS = {"kind": "word", "size": 100, "min_frequency": 1}
LABELS = Learned(classes=("no", "yes"), sentences=2)
IMAGES = Learned(classes=("a", "b"), shape=(2, 3, 1), mean=(0.5,), deviation=(0.25,))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("learned", "part", "verb", "its"),
    [(LABELS, "labels", "are", "their"), (IMAGES, "images", "is", "its")],
)
def test_what_was_kept_and_is_damaged(
    tmp_path: Path, learned: Learned, part: str, verb: str, its: str
) -> None:
    learned.save(tmp_path)
    assert Learned.load(tmp_path, (part,)) == learned and has_learned(tmp_path, (part,))
    path = tmp_path / "vocabulary" / f"{part}.json"
    path.write_text(path.read_text().replace(learned.classes[1], "c"))
    words = rf"{part}.json {verb} damaged \({its} checksum does not match\); put back a good copy"
    with pytest.raises(UserError, match=words):
        Learned.load(tmp_path, (part,))
    for content in ('{"labels"', json.dumps({"classes": "ab", "labels": 3})):
        path.write_text(content)
        with pytest.raises(UserError, match=f"{part}.json {verb} damaged .*put back a good copy"):
            Learned.load(tmp_path, (part,))
    path.unlink()
    with pytest.raises(UserError, match=f"cannot read .*{part}.json"):
        Learned.load(tmp_path, (part,))
    with pytest.raises(UserError, match=r"cannot read the vocabulary .*source\.json"):
        load_vocabularies(tmp_path)


def test_moments_are_those_of_all_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 2, 3, 2)).astype(np.uint8)
    images[..., 1] = 7
    mean, deviation = moments(images)
    wide = images / 255
    np.testing.assert_allclose(mean, wide.mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(deviation, [wide[..., 0].std(), 1.0], rtol=1e-12)  # never changes


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({}, {"size": 90}, "size is 100 there and 90 here; take another workdir"),
        ({}, {"shared": False}, "shared is True there and False here; take"),
        (
            {"shared": False, "target_kind": "char"},
            {"shared": False},
            "target_kind is 'char' there and 'word' here; take another workdir",
        ),
    ],
)
def test_a_vocabulary_of_other_settings_is_refused(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], words: str
) -> None:
    data = {"name": "dates", "examples": 20, "valid": 5}
    Corpus.load(data, {**WORDS, **before}).save(tmp_path)
    with pytest.raises(UserError, match=words):
        Corpus.load(data, {**WORDS, **now}, tmp_path)


def test_a_vocabulary_is_inherited_where_the_settings_are_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that begins with the weights of another reads ids as that did."""
    own, other = (VocabularySettings.read({**WORDS, "size": size}) for size in (100, 90))
    assert inherited_vocabulary(None, own) is None
    learned = Learned.of_vocabulary(Vocabulary.train(["a dog"], **own.of_one))
    learned.save(tmp_path)
    vocabulary = inherited_vocabulary(tmp_path, own)
    assert vocabulary is not None and vocabulary.settings == own.of_one
    assert inherited_vocabulary(tmp_path, other) is None
    assert "has another vocabulary than config.vocabulary asks for" in caplog.text
    assert "--config.vocabulary.size=100" in caplog.text
