"""Pairs become ids and come back; configs that are none are told."""

from pathlib import Path

import pytest

from attnlab.data.corpus import Corpus, encode
from attnlab.data.learned import SIDES
from attnlab.data.vocabulary import EOS, UNK
from tests.refusals import check_refused

WORDS = {"kind": "word", "size": 100, "min_frequency": 1}


@pytest.mark.quick
@pytest.mark.parametrize("shared", [True, False])
def test_texts_become_ids_with_eos_and_come_back(tmp_path: Path, shared: bool) -> None:
    """The test split alone has the word "zebra"."""
    for name, source, target in (
        ("train", "ein hund\nzwei hunde\n", "a dog\ntwo dogs\n"),
        ("test", "zwei zebra\n", "two zebra\n"),
    ):
        (tmp_path / f"{name}.de").write_text(source)
        (tmp_path / f"{name}.en").write_text(target)
    files = {"name": "files", "directory": str(tmp_path)}
    corpus = Corpus.load(files, {**WORDS, "shared": shared}, splits=("train", "test"))
    assert (corpus.learned.source is corpus.learned.target) == shared
    vocabularies = corpus.learned.vocabularies
    for number, (side, vocabulary) in enumerate(zip(SIDES, vocabularies, strict=True)):
        packed = corpus.examples["train"].packed(side)
        assert all(ids[-1] == EOS for ids in packed)
        texts = [vocabulary.decode(ids) for ids in packed]
        assert texts == [pair[number] for pair in corpus.rows["train"]]
    of_side = {"tokens": 6, "unknown": 0, "longest": 3}
    sides = {f"{side}_{name}": n for side in SIDES for name, n in of_side.items()}
    assert corpus.counts("train") == {"pairs": 2, **sides}
    assert corpus.counts("test")["source_unknown"] == corpus.counts("test")["target_unknown"] == 1
    assert UNK in corpus.examples["test"].packed("source")[0]


def test_each_side_may_have_a_kind_of_its_own(tmp_path: Path) -> None:
    data = {"name": "dates", "examples": 50, "valid": 5}
    settings = {**WORDS, "shared": False, "target_kind": "char"}
    corpus = Corpus.load(data, settings)
    source, target = (vocabulary.settings for vocabulary in corpus.learned.vocabularies)
    assert source == {**target, "kind": "word"} != target
    examples = encode(corpus.learned.vocabularies, [("3 march 1967", ""), ("4/5/6", "")])
    assert examples.packed("target")[0].tolist() == [EOS]
    words = "kind='word' and target_kind='char': a shared vocabulary has one kind"
    check_refused(words, Corpus.load, data, {**settings, "shared": True})


def test_bad_config() -> None:
    for name, vocabulary, message in (
        ("fles", {}, "unknown data source 'fles'; did you mean 'files'"),
        ("dates", {"szie": 3}, "vocabulary.szie: no such key; did you mean 'size'"),
    ):
        check_refused(message, Corpus.load, {"name": name}, vocabulary)
