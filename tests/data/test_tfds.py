"""Sets of TensorFlow Datasets, named ones and one's own, are read offline and without TensorFlow;
mistakes are one line.
"""

import importlib.util
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data import prepared as module
from attnlab.data.documents import Corpus, find, pieces
from attnlab.data.tfds import Tfds, main
from attnlab.errors import UserError
from tests.data.tfds_sets import TinySet, library
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
        with pytest.raises(UserError, match=words):
            Tfds("attnlab_tiny_pairs", str(prepared), source="de", label=label).labelled("train")


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
