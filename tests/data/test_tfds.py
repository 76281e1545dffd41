"""Texts and images of TensorFlow Datasets, of named sets and of one's own, are read offline and without
TensorFlow, with labels and with captions; mistakes are one line.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SOURCES
from attnlab.data import prepared as module
from attnlab.data.documents import Corpus, find, pieces
from attnlab.data.tfds import Tfds, main
from tests.data.tfds_sets import AttnlabTinyImages, TinySet, library, pixels
from tests.refusals import check_refused


class AttnlabTinyPairs(TinySet):
    """Twenty pairs, one of them with a blank side; each is of one of two kinds but for every fifth,
    of which nobody knows.
    """

    numbers = {"train": range(20), "validation": range(2)}

    def features(self, of: Any) -> dict[str, Any]:
        kind, number = of.ClassLabel(names=["odd", "even"]), of.Scalar(dtype=np.int32)
        return {"de": of.Text(), "en": of.Text(), "number": number, "kind": kind}

    def record(self, number: int) -> dict[str, Any]:
        english = " " if number == 7 else f"apples {number}"
        kind = -1 if number % 5 == 0 else (number + 1) % 2
        return {"de": f" Äpfel {number} ", "en": english, "number": number, "kind": kind}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return AttnlabTinyPairs.prepared(tmp_path_factory.mktemp("tfds"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to reach another machine fails the test at once."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(f"network: {arguments}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.quick
def test_a_set_by_name_and_by_folder(prepared: Path, caplog: pytest.LogCaptureFixture) -> None:
    by_name = Tfds("attnlab_tiny_pairs", str(prepared), source="de").pairs("train")
    assert sorted(by_name) == sorted((f"Äpfel {i}", f"apples {i}") for i in range(20) if i != 7)
    assert "skipped 1 pairs" in caplog.text
    folder = str(prepared / "attnlab_tiny_pairs" / "1.0.0")
    assert Tfds(directory=folder, source="de").pairs("train") == by_name
    first, rest, both = (
        Tfds(directory=folder, train=part, source="de").pairs("train")
        for part in ("train[:60%]", "train[60%:]", "train+validation")
    )
    assert first + rest == by_name and len(both) == 21
    texts = Tfds(directory=folder, source="en", target="no feature").texts("train")
    assert len(texts) == 20
    assert sorted(filter(None, texts)) == sorted(english for _, english in by_name)


def test_labels_by_their_names(prepared: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One text or two, and the name of a numbered class, or a text; what has no label is skipped,
    and said.
    """
    tiny = Tfds("attnlab_tiny_pairs", str(prepared), source="de", label="kind")
    expected = [i for i in range(20) if i % 5 and i != 7]
    assert sorted(tiny.labelled("train")) == sorted(
        ((f"Äpfel {i}", f"apples {i}"), "even" if i % 2 == 0 else "odd") for i in expected
    )
    assert "skipped 5 examples" in caplog.text and tiny.sentences == 2
    single = Tfds("attnlab_tiny_pairs", str(prepared), source="en", target="", label="de")
    assert sorted(single.labelled("train")) == sorted(
        ((f"apples {i}",), f"Äpfel {i}") for i in range(20) if i != 7
    )
    assert single.sentences == 1
    for label, words in (
        ("", "config.data.label is not set"),
        ("kin", "config.data.label='kin' is no feature .* did you mean 'kind'"),
    ):
        source = Tfds("attnlab_tiny_pairs", str(prepared), source="de", label=label)
        check_refused(words, source.labelled, "train")


@pytest.mark.parametrize(
    "name,source", [("ted_hrlr_translate/pt_to_en", "pt"), ("wmt14_translate/de-en", "de")]
)
def test_named_sets_also_older_ones(name: str, source: str) -> None:
    with library.testing.mock_data(num_examples=4):
        pairs = Tfds(name, source=source, target="en").pairs("train")
    assert len(pairs) == 4
    assert all(isinstance(text, str) and text for pair in pairs for text in pair)


def test_a_set_that_is_not_prepared_says_how_to_prepare_it(tmp_path: Path) -> None:
    for name, source in (("ted_hrlr_translate/pt_to_en", "pt"), ("attnlab_tiny_pairs", "de")):
        command = f"python -m attnlab.data.tfds {name} --directory {tmp_path}"
        words = f"dataset {name!r} is not prepared in {tmp_path}.* 'attnlab.prepare.' && {command}$"
        check_refused(words, Tfds(name, str(tmp_path), source=source).pairs, "train")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ted_hrlr_translat/pt_to_en", "'ted_hrlr_translat'; did you mean 'ted_hrlr_translate'"),
        ("wmt14_translte/de-en", "did you mean 'wmt14_translate'"),
        ("qqqqqq", "see https://www.tensorflow.org/datasets/catalog"),
        ("ted_hrlr_translate/pt_to_enn", "has no config 'pt_to_enn'; did you mean 'pt_to_en'"),
        ("wmt14_translate/de-xx", "did you mean 'de-en'"),
        ("ted_hrlr_translate/pt_to_en:9.9.9", "cannot be loaded at version 9.9.9, only: 1.0.0"),
        ("huggingface:wmt14", "is no name"),
        ("a b", "is no name"),
        ("", "it has no dataset_info.json"),
    ],
)
def test_names_that_are_none(name: str, message: str, tmp_path: Path) -> None:
    check_refused(re.escape(message), Tfds(name, str(tmp_path)).pairs, "train")


def test_wrong_splits_and_features(prepared: Path) -> None:
    records = library.data_source(
        "attnlab_tiny_pairs", split="train", data_dir=prepared, download=False
    )
    (blank,) = (i for i in range(20) if not records[i]["en"].strip())
    tiny = "dataset 'attnlab_tiny_pairs'"
    for split, fields, words in (
        ("test", {}, f"^config.data.test='test' is no split of {tiny} .*: train, validation$"),
        ("train", {"train": "trian"}, "config.data.train='trian' is no split"),
        ("train", {"train": "train[:x%]"}, r"config.data.train='train\[:x%\]' is no split"),
        (
            "train",
            {"source": "fr"},
            f"source='fr' is no feature of {tiny}; .*: de, en, kind, number",
        ),
        ("train", {"target": "number"}, "feature 'number' is no text, but"),
        ("train", {"train": "train[:0]"}, rf"train='train\[:0\]' of {tiny} has no record"),
        ("train", {"train": f"train[{blank}:{blank + 1}]"}, "has no sentence pair there"),
    ):
        source = Tfds("attnlab_tiny_pairs", str(prepared), **{"source": "de", **fields})
        check_refused(words, source.pairs, split)


def test_damaged_files(prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(prepared / "attnlab_tiny_pairs" / "1.0.0", folder)
    (records,) = folder.glob("*train*")
    records.write_bytes(records.read_bytes()[:1000])
    source = Tfds(directory=str(folder), source="de")
    words = f"the dataset prepared in {folder} is damaged"
    check_refused(words, source.pairs, "train")
    records.unlink()
    check_refused(words, source.pairs, "train")
    (folder / "dataset_info.json").write_text("{")
    check_refused(str(folder), source.pairs, "train")

    assert module.as_text(" Köln ".encode(), "de") == "Köln"
    check_refused("feature 'de' holds a text that is not UTF-8", module.as_text, b"K\xf6ln", "de")


def test_preparing_without_tensorflow_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["ted_hrlr_translate/pt_to_en"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "pip install 'attnlab[prepare]'" in captured.err
    assert not captured.out


def test_preparing_our_own_set_and_preparing_without_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # as if TensorFlow were there
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert main(["attnlab_tiny_pairs", "--directory", str(tmp_path)]) == 0
    assert f"prepared in {tmp_path / 'attnlab_tiny_pairs' / '1.0.0'}" in capsys.readouterr().out
    assert len(Tfds("attnlab_tiny_pairs", str(tmp_path), source="de").pairs("valid")) == 2

    import requests

    def unreachable(*arguments: object, **options: object) -> None:
        raise requests.exceptions.ConnectionError("no route")

    monkeypatch.setattr(library.core.DatasetBuilder, "download_and_prepare", unreachable)
    assert main(["ted_hrlr_translate/pt_to_en", "--directory", str(tmp_path)]) == 2
    words = "cannot download dataset 'ted_hrlr_translate/pt_to_en': no route"
    assert words in capsys.readouterr().err


def test_a_corpus_of_a_prepared_set(prepared: Path) -> None:
    """What `prepare` reads of the same folder, in chunks."""
    (folder,) = find([str(next(prepared.rglob("dataset_info.json")).parent)])
    corpus = Corpus((folder,), field="en")
    actual = [pieces(corpus, chunk) for chunk in corpus.chunks()]
    assert [len(texts) for texts, _ in actual] == [19] and actual[0][1] == 1
    assert {text for text, _ in actual[0][0]} == {f"apples {i}" for i in range(20) if i != 7}
    for how, message in (
        ({"field": "eng"}, "--field='eng' is no feature"),
        ({"split": "trian", "field": "en"}, "--split='trian' is no split"),
    ):
        check_refused(message, list, Corpus((folder,), **how).chunks())


@pytest.fixture(scope="module")
def image_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared set."""
    folder = AttnlabTinyImages.prepared(tmp_path_factory.mktemp("images"))
    return folder / "attnlab_tiny_images" / "1.0.0"


def made(image_set: Path, **fields: Any) -> Any:
    given = {"directory": str(image_set), "side": 0, "held_out": 0.3, **fields}
    return SOURCES.resolve("tfds_images")(**given)


def numbered(images: np.ndarray, grey: bool = False) -> list[int]:
    """Which images these are."""
    known = {pixels(k)[..., : 1 if grey else 3].tobytes(): k for k in range(13)}
    return [known[image.tobytes()] for image in images]


@pytest.mark.quick
def test_images_with_labels(image_set: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bit for bit, with the names of their classes; one without a label is left out, and said."""
    source = made(image_set)
    actual = {split: source.images(split) for split in ("train", "valid", "test")}
    read = {split: numbered(one.images) for split, one in actual.items()}
    assert sorted(read["train"] + read["valid"]) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sorted(read["test"]) == [10, 11, 12] and source.shape is None
    for split, one in actual.items():
        assert list(one.labels) == [["even", "odd"][k % 2] for k in read[split]]
    assert "skipped 1 images of the dataset in" in caplog.text and "a label" in caplog.text
    assert numbered(source.images("train").images) == read["train"]
    own = made(image_set, train="train[:60%]", valid="train[60%:]", label="number")
    parts = [own.images(split) for split in ("train", "valid")]
    assert [len(one.labels) for one in parts] == [6, 4]
    for one in parts:
        assert list(one.labels) == [str(k) for k in numbered(one.images)]
    titles = made(image_set, label="title").images("test")
    assert list(titles.labels) == [f"Title {k}" for k in numbered(titles.images)]
    grey = made(image_set, image="grey", grey=True).images("test")
    assert grey.images.shape == (3, 4, 6, 1) and sorted(numbered(grey.images, True)) == [10, 11, 12]


def test_images_with_captions(image_set: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An image stands there once for each of its captions, and none of them is in two splits."""
    source = made(image_set)
    actual = {split: source.captions(split) for split in ("train", "valid", "test")}
    for one in actual.values():
        numbers = numbered(one.images)
        texts = [int(text.split()[-1]) for text in one.captions]
        assert texts == [j for k in dict.fromkeys(numbers) for j in range(k % 3)]
        assert one.captions == [f"Image {k}, text {j}" for k, j in zip(numbers, texts, strict=True)]
    train, valid = ({*numbered(actual[split].images)} for split in ("train", "valid"))
    assert sorted(train | valid) == [1, 2, 4, 5, 7, 8] and not train & valid
    assert re.search(r"skipped \d images of .* without a caption", caplog.text)
    titles = made(image_set, caption="title").captions("test")
    assert titles.captions == [f"Title {k}" for k in numbered(titles.images)]


def test_images_are_resized_as_those_of_a_folder(image_set: Path) -> None:
    source = made(image_set, side=3, image="sizes")
    assert source.shape == (3, 3, 3) and source.images("train").images.shape[1:] == (3, 3, 3)
    test = source.images("test")
    whole = made(image_set, image="sizes").images("test")
    for small, image in zip(test.images, whole.images, strict=True):
        expected = Image.fromarray(image).resize((3, 3), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(small, expected)
    grey = made(image_set, side=3, grey=True).images("test").images
    assert grey.shape == (3, 3, 3, 1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "imag"}, "config.data.image='imag' is no feature of .*; did you mean 'image'"),
        ({"label": "labl"}, "config.data.label='labl' is no feature of .*; did you mean 'label'"),
        ({"image": "title"}, "config.data.image='title' of .* is no feature of images, but Text"),
        ({"image": "grey"}, "images of one channel; set config.data.grey=true"),
        ({"image": "clear"}, "images of 4 channels, uint8; expected 1 or 3 channels, uint8"),
        ({"image": "deep"}, "images of 1 channels, uint16; expected 1 or 3"),
        ({"label": "share"}, "feature 'share' is no text, but float"),
        ({"label": "captions"}, "feature 'captions' is no text, but dict"),
        ({"label": "blank"}, "has no image with a label there"),
        ({"train": "trian"}, "config.data.train='trian' is no split of .*"),
        ({"train": "train[:1%]"}, r"config.data.train='train\[:1%\]' of .* has no record; take a"),
        ({"image": "sizes"}, r"of the train split .* is (4|5) x 6 pixels, image .* (4|5) x 6; set"),
        ({"side": -1}, r"config.data.side=-1 must be in 0 ... 4096"),
        ({"held_out": 0.01}, "both splits need one"),
        ({"directory": "nowhere"}, "set config.data.dataset to a name of the TFDS catalogue"),
    ],
)
def test_what_is_wrong_with_labels(image_set: Path, fields: dict[str, Any], words: str) -> None:
    check_refused(words, lambda: made(image_set, **fields).images("train"))


def test_what_is_wrong_with_captions(image_set: Path) -> None:
    for caption, words in (
        ("captions.txt", "'captions.txt' is no feature of .*; did you mean 'captions.text'"),
        ("captions.id", "feature 'captions.id' is no text, but int64"),
        ("blank", "has no image with a caption there"),
    ):
        check_refused(words, made(image_set, caption=caption).captions, "test")
    words = r"image . of the test split of .* is damaged or no image"
    check_refused(words, made(image_set, image="broken").captions, "test")


def test_tensorflow_stays_away(image_set: Path) -> None:
    """From images by folder, an older set, and one whose class is not known in a fresh process. The
    library warns of a decoder that it prefers; it does not decode here.
    """
    code = (
        "import sys\n"
        "from attnlab.data.tfds import Tfds, TfdsImages\n"
        "assert 'tensorflow_datasets' not in sys.modules\n"
        f"source = TfdsImages(directory={str(image_set)!r})\n"
        "assert len(source.captions('test').captions) == 3 and len(source.images('test').labels)\n"
        f"tiny = Tfds('attnlab_tiny_images', {str(image_set.parents[1])!r}, source='title')\n"
        "assert len(tiny.texts('test')) == 3\n"
        "import tensorflow_datasets as library\n"
        "with library.testing.mock_data(num_examples=2): assert len(Tfds('wmt14_translate/de-en',"
        " source='de').pairs('train')) == 2\n"
        "assert 'tensorflow' not in sys.modules and 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "OpenCV" not in done.stderr, done.stderr
