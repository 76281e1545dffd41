"""Records of prepared datasets: features by name, also those within others, chosen rows, images as they
are stored, and sets whose code needs TensorFlow.

Names, splits, formats and damaged files: `test_tfds.py`.
"""

import dataclasses
from pathlib import Path

import pytest

from attnlab.data.prepared import Prepared, features_of, open_builder
from attnlab.data.tfds import Tfds
from attnlab.errors import UserError
from tests.data.tfds_sets import AttnlabTinyImages, encoded, pixels
from tests.refusals import check_refused


@dataclasses.dataclass(frozen=True)
class Fields(Prepared):
    """A source of four features."""

    text: str = "pair.en"
    kind: str = "pair.kind"
    texts: str = "captions.text"
    picture: str = "image"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that holds the set."""
    return AttnlabTinyImages.prepared(tmp_path_factory.mktemp("nested"))


def source(folder: Path, **fields: str) -> Fields:
    return Fields("attnlab_tiny_images", str(folder), **fields)


@pytest.mark.quick
def test_features_within_others_and_images_as_they_are_stored(folder: Path) -> None:
    actual = list(source(folder).scan("train", "text", "kind", "texts", "picture"))
    numbers = [int(text.decode().split()[1]) for text, *_ in actual]
    assert sorted(numbers) == list(range(10))
    kinds = ("even", "odd")
    for number, (_, kind, texts, picture) in zip(numbers, actual, strict=True):
        assert kind == kinds[number % 2] and picture == encoded(pixels(number))
        assert texts == [f" Image {number},\n text {j} ".encode() for j in range(number % 3)]
    names = features_of(open_builder("attnlab_tiny_images", str(folder)))
    within = {"pair.en", "pair.kind", "captions.text", "captions.id", "captions.kind"}
    assert {name for name in names if "." in name} == within and {"pair", "image"} < {*names}
    texts = Tfds("attnlab_tiny_images", str(folder), source="pair.en", target="pair.kind")
    assert sorted(texts.pairs("train")) == [(f"record {k}", kinds[k % 2]) for k in range(10)]


def test_rows_are_chosen_before_they_are_read(folder: Path) -> None:
    whole = [text for (text,) in source(folder).scan("train", "text")]
    rows = lambda count: [count - 1, 0, 2]
    expected = [whole[9], whole[0], whole[2]]
    assert [text for (text,) in source(folder).scan("train", "text", rows=rows)] == expected


def test_a_feature_that_is_not_there(folder: Path) -> None:
    for name, words in (
        ("pair.de", r"config.data.text='pair.de' is no feature of .*; did you mean 'pair.en'"),
        ("record", r"choose from: blank, broken, captions, captions.id, captions.kind, captions.t"),
    ):
        check_refused(words, next, source(folder, text=name).scan("train", "text"))
    lists = {"source": "captions.text", "target": "captions.kind"}
    texts = Tfds("attnlab_tiny_images", str(folder), **lists)
    check_refused("feature 'captions.text' is no text, but list", texts.pairs, "train")


def test_a_set_whose_code_needs_tensorflow_is_read_from_its_files(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So it is with `coco_captions`, whose features name types of TensorFlow."""
    monkeypatch.setattr(AttnlabTinyImages, "needs", "tensorflow")
    assert len(list(source(folder).scan("train", "text"))) == 10
    for name in ("attnlab_tiny_images", "coco_captions"):
        with pytest.raises(UserError, match="is not prepared in .* prepare it once: pip") as caught:
            next(Fields(name, str(tmp_path)).scan("train", "text"))
        assert f"attnlab.data.tfds {name} --directory {tmp_path}" in str(caught.value)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(AttnlabTinyImages, "needs", "nothing_such")
    words = "config.data.dataset=.*: .*No module named 'nothing_such'"
    check_refused(words, next, source(folder).scan("train", "text"))
