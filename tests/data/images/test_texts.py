"""What is learned of images with captions comes from training and is kept; a folder of them is read as it
says, or refused in one line. What a run learns of questions about images: answers, guesses, columns
that share images, and what is refused.
"""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SOURCES
from attnlab.data.images.texts import Asked, CaptionData, Prior, Question, QuestionData
from attnlab.data.learned import moments
from attnlab.errors import UserError
from tests.refusals import check_refused

WORDS = {"kind": "word", "size": 50, "min_frequency": 1}
SCENES = {"name": "scenes", "examples": 12, "valid": 5, "test": 4, "side": 24, "grid": 2}
SCENES |= {"small": 3, "large": 4, "most": 2, "jitter": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images; the second of training has two captions."""
    rng = np.random.default_rng(0)
    for name in "abcde":
        pixels = rng.integers(0, 256, (5, 6, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    train = [("a.png", "one"), ("b.png", "two"), ("b.png", "a second"), ("c.png", "three words so")]
    (tmp_path / "train.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in train))
    rows = [{"file": "d.png", "caption": "a  line\nend"}, {"file": "e.png", "caption": "e"}]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return tmp_path


def made(folder: Path, **fields: Any) -> Any:
    chosen = {"directory": str(folder), "test": "test.jsonl", "side": 4, "held_out": 0.34, **fields}
    return SOURCES.resolve("caption_folder")(**chosen)


@pytest.mark.quick
def test_a_folder_gives_images_and_captions(folder: Path) -> None:
    source = made(folder)
    test = source.captions("test")
    assert test.captions == ["a line end", "e"] and test.shown is None
    with Image.open(folder / "d.png") as opened:
        resized = np.asarray(opened.resize((4, 4), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(test.images[0], resized)
    train, valid = source.captions("train"), source.captions("valid")
    assert len(train.images) == len(train.captions) and len(train.images) + len(valid.images) == 4
    assert {*train.captions, *valid.captions} == {"one", "two", "a second", "three words so"}
    assert ("two" in train.captions) == ("a second" in train.captions)  # of one image
    assert made(folder, grey=True).captions("test").images.shape == (2, 4, 4, 1)
    own = made(folder, valid="test.jsonl")
    assert own.captions("valid").captions == test.captions
    assert len(own.captions("train").images) == 4
    run = {"name": "caption_folder", "directory": str(folder), "test": "test.jsonl", "side": 4}
    data = CaptionData.load({**run, "held_out": 0.34}, WORDS, None, ("train", "test"))
    assert data.rows["test"] == test.captions and data.extra["test"] is None


def test_what_is_wrong_with_a_folder_is_one_line(folder: Path) -> None:
    def said(text: str, name: str = "test.tsv", **fields: Any) -> str:
        (folder / name).write_text(text)
        with pytest.raises(UserError) as error:
            made(folder, test=name, **fields).captions("test")
        return str(error.value).replace(str(folder), "IN")

    assert said("gone.png\twords\n").startswith("IN/test.tsv, line 1: cannot find IN/gone.png")
    (folder / "bad.png").write_bytes((folder / "a.png").read_bytes()[:60])
    assert "IN/test.tsv, line 2: IN/bad.png is damaged" in said("a.png\tx\nbad.png\ty\n")
    (folder / "text.png").write_text("no image")
    assert "text.png is damaged or no image" in said("text.png\tx\n")
    for line in ("a.png", "a.png\t", "\twords"):
        assert "line 2: expected 'file TAB caption', both not empty" in said(f"b.png\tx\n{line}\n")
    assert "nothing but blank lines" in said("\n\n")
    assert said('{"file": "a.png"}', "x.jsonl").startswith("IN/x.jsonl, line 1: no field 'caption'")
    assert "expected a text" in said('{"file": "a.png", "caption": " "}', "x.jsonl")
    assert "line 1: no JSON" in said("{", "x.jsonl")
    check_refused("cannot find .*train.tsvs", made(folder, train="train.tsvs").captions, "train")
    check_refused(r"config.data.side=0 must be in 1 ... 4096", made, folder, side=0)
    check_refused("both splits need one", made(folder, held_out=0.01).captions, "valid")


def test_columns_are_what_the_source_says() -> None:
    data = CaptionData.load(SCENES, WORDS, None, ("train", "valid"))
    images = data.examples["train"].batch(np.arange(12), 20)["source"]
    assert (data.learned.mean, data.learned.deviation) == moments(images)
    one = data.examples["valid"].batch(np.array([3, -1]), 20)
    assert data.vocabulary.decode(one["target"][0]) == data.rows["valid"][3]
    assert (one["target"][1] == data.vocabulary.special.pad).all() and not one["source"][1].any()
    assert "24 x 24 x 3" in data.about("valid")
    noisy = CaptionData.load({**SCENES, "noise": 1}, WORDS)
    assert noisy.fingerprints["valid"] != data.fingerprints["valid"]


NODE = {"name": "given"}
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
