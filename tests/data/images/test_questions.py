"""What a run learns of questions about images: answers, guesses, columns that share images, and what
is refused.
"""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab.data.images.questions import Asked, Prior, Question, QuestionData
from attnlab.errors import UserError

NODE = {"name": "given"}
WORDS = {"kind": "word", "size": 50, "min_frequency": 1}
IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4, 1)
TRAIN = [
    Question(0, "what is it", "cat"),
    Question(1, "what is it", "dog"),
    Question(1, "what is it", "dog"),
    Question(0, "how many", "1"),
]
VALID = [Question(0, "how many", "1"), Question(0, "what is it", "cat"), Question(0, "why", "dog")]


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a source asks of each split; under "read" the splits whose images were read."""
    given: dict[str, Any] = {"train": TRAIN, "valid": VALID, "test": VALID, "read": []}

    def asked(split: str) -> Asked:
        return Asked(given[split], lambda: given["read"].append(split) or IMAGES)

    source = SimpleNamespace(visual_questions=asked)
    monkeypatch.setattr(QuestionData, "of_config", lambda data: source)
    return given


@pytest.mark.quick
def test_what_is_learned_comes_from_training_alone(splits: dict[str, Any], tmp_path: Path) -> None:
    data = QuestionData.load(NODE, WORDS)
    assert data.learned.classes == ("1", "cat", "dog") and data.learned.shape == (3, 4, 1)
    assert data.learned.mean == (pytest.approx(IMAGES.mean() / 255),)
    assert data.labels("valid").tolist() == [0, 1, 2] and data.size("train") == 4
    batch = data.examples["train"].batch(np.array([2, 0, -1]), 5)
    np.testing.assert_array_equal(batch["image"], [*IMAGES[[1, 0]], 0 * IMAGES[0]])
    assert batch["question"].shape == (3, 5) and batch["label"].tolist() == [3, 2, 0]
    assert data.vocabulary.decode(batch["question"][0][:3]) == "what is it"
    assert data.vocabulary.special.unknown(data.examples["valid"].packed("question").ids) == 1
    told = "3 questions about 1 images of 3 x 4 x 1, 9 tokens (1 unknown), 3 answers; accuracy of"
    assert data.about("valid").startswith(told)
    data.save(tmp_path)
    splits["read"].clear()
    QuestionData.load(NODE, WORDS, tmp_path, ("test",))
    assert splits["read"] == ["test"]


def test_guesses_see_no_image() -> None:
    """Chance 1/3; "dog" for all; for each question what most images have, "dog" for one unheard of."""
    prior = Prior(TRAIN)
    assert [prior.guess(text) for text in ("what is it", "how many", "why")] == ["dog", "1", "dog"]
    expected = {"chance": 1 / 3, "majority": 1 / 3, "question_only": 2 / 3}
    assert prior.scores(VALID) == pytest.approx(expected)


def test_answers_that_training_does_not_have_are_told_of(
    splits: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    splits["valid"] = [*VALID, Question(0, "why", "cow")]
    with caplog.at_level(logging.WARNING):
        data = QuestionData.load(NODE, WORDS)
    words = "1 of 4 questions have an answer that the training split does not have (cow)"
    assert words in caplog.text
    assert data.labels("valid").tolist() == [0, 1, 2, 3]
    splits["valid"] = [Question(0, "why", "dogs")]
    with pytest.raises(UserError, match="the answer 'dogs' and no other .* did you mean 'dog'"):
        QuestionData.load(NODE, WORDS)
