"""Records of prepared datasets: features by name, also those within others, chosen rows, images as they
are stored, and sets whose code needs TensorFlow.

Names, splits, formats and damaged files: `test_tfds.py`.
"""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data.prepared import Prepared, features_of, open_builder
from attnlab.data.tfds import Tfds
from attnlab.errors import UserError
from tests.data.tfds_sets import TinySet
from tests.refusals import check_refused


class AttnlabNestedRecords(TinySet):
    """Six records of features within features, and an image."""

    numbers = {"train": range(6)}
    needs: str | None = None  # a module that its code asks for and that is not there

    def features(self, of: Any) -> dict[str, Any]:
        if self.needs:
            raise ModuleNotFoundError(f"No module named {self.needs!r}")
        kind = of.ClassLabel(names=["a", "b"])
        message = of.Sequence({"text": of.Text(), "kind": kind})
        return {"pair": {"en": of.Text(), "kind": kind}, "said": message, "image": of.Image()}

    def record(self, number: int) -> dict[str, Any]:
        message = [{"text": f"text {j}", "kind": j} for j in range(number % 3)]
        pair = {"en": f"record {number}", "kind": number % 2}
        return {"pair": pair, "said": message, "image": stored(number)}


def stored(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 3, 3), number, np.uint8)).save(file, "png")
    return file.getvalue()


@dataclasses.dataclass(frozen=True)
class Fields(Prepared):
    """A source of four features."""

    text: str = "pair.en"
    kind: str = "pair.kind"
    texts: str = "said.text"
    picture: str = "image"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that holds the set."""
    return AttnlabNestedRecords.prepared(tmp_path_factory.mktemp("nested"))


def source(folder: Path, **fields: str) -> Fields:
    return Fields("attnlab_nested_records", str(folder), **fields)


@pytest.mark.quick
def test_features_within_others_and_images_as_they_are_stored(folder: Path) -> None:
    actual = list(source(folder).scan("train", "text", "kind", "texts", "picture"))
    numbers = [int(text.decode().split()[1]) for text, *_ in actual]
    assert sorted(numbers) == list(range(6))
    for number, (_, kind, texts, picture) in zip(numbers, actual, strict=True):
        assert kind == "ab"[number % 2] and picture == stored(number)
        assert texts == [f"text {j}".encode() for j in range(number % 3)]
    names = features_of(open_builder("attnlab_nested_records", str(folder)))
    assert {*names} == {"pair", "pair.en", "pair.kind", "said", "said.text", "said.kind", "image"}
    texts = Tfds("attnlab_nested_records", str(folder), source="pair.en", target="pair.kind")
    assert sorted(texts.pairs("train")) == [(f"record {k}", "ab"[k % 2]) for k in range(6)]


def test_rows_are_chosen_before_they_are_read(folder: Path) -> None:
    whole = [text for (text,) in source(folder).scan("train", "text")]
    rows = lambda count: [count - 1, 0, 2]
    expected = [whole[5], whole[0], whole[2]]
    assert [text for (text,) in source(folder).scan("train", "text", rows=rows)] == expected


def test_a_feature_that_is_not_there(folder: Path) -> None:
    for name, words in (
        ("pair.de", r"config.data.text='pair.de' is no feature of .*; did you mean 'pair.en'"),
        ("record", r"choose from: image, pair, pair.en, pair.kind, said, said.kind, said.text"),
    ):
        with pytest.raises(UserError, match=words):
            next(source(folder, text=name).scan("train", "text"))
    texts = Tfds("attnlab_nested_records", str(folder), source="said.text", target="said.kind")
    check_refused("feature 'said.text' is no text, but list", texts.pairs, "train")


def test_a_set_whose_code_needs_tensorflow_is_read_from_its_files(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So it is with `coco_captions`, whose features name types of TensorFlow."""
    monkeypatch.setattr(AttnlabNestedRecords, "needs", "tensorflow")
    assert len(list(source(folder).scan("train", "text"))) == 6
    for name in ("attnlab_nested_records", "coco_captions"):
        with pytest.raises(UserError, match="is not prepared in .* prepare it once: pip") as caught:
            next(Fields(name, str(tmp_path)).scan("train", "text"))
        assert f"attnlab.data.tfds {name} --directory {tmp_path}" in str(caught.value)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(AttnlabNestedRecords, "needs", "nothing_such")
    with pytest.raises(UserError, match="config.data.dataset=.*: .*No module named 'nothing_such'"):
        next(source(folder).scan("train", "text"))
