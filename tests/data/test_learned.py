"""What a run learns is kept in files that show their damage; vocabularies may be inherited."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data.corpus import Corpus
from attnlab.data.learned import Learned, VocabularySettings, inherited_vocabulary, moments
from attnlab.data.vocabulary import Vocabulary
from tests.refusals import check_refused

WORDS = {"kind": "word", "size": 100, "min_frequency": 1}
TWO = {"shared": False}


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
        (TWO | {"target_kind": "char"}, TWO, "target_kind is 'char' there and 'word' here; take"),
    ],
)
def test_a_vocabulary_of_other_settings_is_refused(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], words: str
) -> None:
    data = {"name": "dates", "examples": 20, "valid": 5}
    Corpus.load(data, {**WORDS, **before}).save(tmp_path)
    check_refused(words, Corpus.load, data, {**WORDS, **now}, tmp_path)


def test_a_vocabulary_is_inherited_where_the_settings_are_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that begins with the weights of another reads ids as that did."""
    own, other = (VocabularySettings.read({**WORDS, "size": size}) for size in (100, 90))
    assert inherited_vocabulary(None, own) is None
    learned = Learned.of_vocabulary(Vocabulary.train(["a dog"], **own.arguments))
    learned.save(tmp_path)
    vocabulary = inherited_vocabulary(tmp_path, own)
    assert vocabulary is not None and vocabulary.settings == own.arguments
    assert inherited_vocabulary(tmp_path, other) is None
    assert "has another vocabulary than config.vocabulary asks for" in caplog.text
    assert "--config.vocabulary.size=100" in caplog.text
