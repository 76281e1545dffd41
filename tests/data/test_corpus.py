"""Vocabularies are learned from the training split alone and kept with the run; ids, counts and
fingerprints follow from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data.corpus import (
    Corpus,
    VocabularySettings,
    encode,
    fingerprint,
    has_vocabularies,
    inherited_vocabulary,
    load,
    load_vocabularies,
    save_vocabularies,
)
from attnlab.data.vocabulary import EOS, UNK
from attnlab.errors import UserError

WORDS = {"kind": "word", "size": 100, "min_frequency": 1}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """The config node of three tiny splits; the test split alone has the word "zebra"."""
    for name, source, target in (
        ("train", "ein hund\nzwei hunde\n", "a dog\ntwo dogs\n"),
        ("valid", "ein hund\n", "a dog\n"),
        ("test", "zwei zebra\n", "two zebra\n"),
    ):
        (tmp_path / f"{name}.de").write_text(source)
        (tmp_path / f"{name}.en").write_text(target)
    return {"name": "files", "directory": str(tmp_path)}


def load_and_save(
    data: dict[str, Any],
    vocabulary: dict[str, Any],
    workdir: Path,
    splits: tuple[str, ...] = ("train", "valid"),
) -> Corpus:
    """What the start of a run does."""
    corpus = load(data, vocabulary, workdir, splits)
    save_vocabularies((corpus.source_vocabulary, corpus.target_vocabulary), workdir)
    return corpus


@pytest.mark.quick
@pytest.mark.parametrize("shared", [True, False])
def test_texts_become_ids_with_eos_and_come_back(
    files: dict[str, Any], tmp_path: Path, shared: bool
) -> None:
    corpus = load(files, {**WORDS, "shared": shared}, tmp_path / "run")
    assert (corpus.source_vocabulary is corpus.target_vocabulary) == shared
    assert set(corpus.examples) == {"train", "valid"}
    vocabularies = {"source": corpus.source_vocabulary, "target": corpus.target_vocabulary}
    for split, pairs in corpus.pairs.items():
        for number, (side, vocabulary) in enumerate(vocabularies.items()):
            packed = corpus.examples[split].packed(side)
            assert all(ids[-1] == EOS for ids in packed)
            assert [vocabulary.decode(ids) for ids in packed] == [pair[number] for pair in pairs]
    of_side = {"tokens": 6, "unknown": 0, "longest": 3}
    sides = {f"{side}_{name}": n for side in ("source", "target") for name, n in of_side.items()}
    assert corpus.counts("train") == {"pairs": 2, **sides}


def test_vocabularies_are_learned_from_the_training_split_alone(
    files: dict[str, Any], tmp_path: Path
) -> None:
    corpus = load(files, WORDS, tmp_path / "run", splits=("test",))
    assert set(corpus.pairs) == {"test"}
    assert corpus.counts("test")["source_unknown"] == corpus.counts("test")["target_unknown"] == 1
    assert UNK in corpus.examples["test"].packed("source")[0]


@pytest.mark.parametrize("shared", [True, False])
def test_saved_vocabularies_are_used_even_when_the_training_data_is_gone(
    files: dict[str, Any], tmp_path: Path, shared: bool
) -> None:
    settings = {**WORDS, "shared": shared}
    assert not has_vocabularies(tmp_path / "run")
    first = load_and_save(files, settings, tmp_path / "run", splits=("valid",))
    assert has_vocabularies(tmp_path / "run")
    (tmp_path / "train.de").unlink()
    again = load(files, settings, tmp_path / "run", splits=("valid",))
    assert np.array_equal(
        first.examples["valid"].packed("source")[0], again.examples["valid"].packed("source")[0]
    )
    assert first.fingerprints == again.fingerprints
    source, target = load_vocabularies(tmp_path / "run")
    assert (source is target) == shared


def test_a_vocabulary_of_other_settings_is_refused(files: dict[str, Any], tmp_path: Path) -> None:
    load_and_save(files, WORDS, tmp_path / "run")
    words = "size is 100 there and 90 here, shared is True there and False here; take"
    with pytest.raises(UserError, match=words):
        load(files, {**WORDS, "size": 90, "shared": False}, tmp_path / "run")


def test_a_vocabulary_is_lent_where_the_settings_are_its_own(
    files: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that begins with the weights of another reads ids as that did."""
    load_and_save(files, WORDS, tmp_path / "run")
    own = VocabularySettings.read(WORDS)
    vocabulary = inherited_vocabulary(tmp_path / "run", own)
    assert vocabulary is not None and vocabulary.settings == own.of_one
    assert (
        inherited_vocabulary(tmp_path / "run", VocabularySettings.read({**WORDS, "size": 90}))
        is None
    )
    assert "has another vocabulary than config.vocabulary asks for" in caplog.text
    assert "--config.vocabulary.size=100" in caplog.text
    assert inherited_vocabulary(None, own) is None


def test_each_side_may_have_a_kind_of_its_own(files: dict[str, Any], tmp_path: Path) -> None:
    settings = {**WORDS, "shared": False, "target_kind": "char"}
    corpus = load_and_save(files, settings, tmp_path / "run", splits=("valid",))
    target = corpus.target_vocabulary.settings
    assert corpus.source_vocabulary.settings == {**target, "kind": "word"} != target
    again = load(files, settings, tmp_path / "run", splits=("valid",))
    assert np.array_equal(
        corpus.examples["valid"].packed("target")[0], again.examples["valid"].packed("target")[0]
    )
    words = "target_kind is 'char' there and 'word' here; take another workdir"
    with pytest.raises(UserError, match=words):
        load(files, {**WORDS, "shared": False}, tmp_path / "run")
    words = "kind='word' and target_kind='char': a shared vocabulary has one kind"
    with pytest.raises(UserError, match=words):
        load(files, {**settings, "shared": True})


def test_half_saved_vocabularies_are_learned_again(files: dict[str, Any], tmp_path: Path) -> None:
    settings = {**WORDS, "shared": False}
    load_and_save(files, settings, tmp_path / "run")
    (tmp_path / "run" / "vocabulary" / "target.json").unlink()
    assert not has_vocabularies(tmp_path / "run")
    load_and_save(files, settings, tmp_path / "run")
    assert has_vocabularies(tmp_path / "run")


def test_loading_writes_nothing(files: dict[str, Any], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    load(files, WORDS)
    load(files, WORDS, tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_vocabularies_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the vocabulary .*source\.json"):
        load_vocabularies(tmp_path)


@pytest.mark.parametrize(
    ("data", "vocabulary", "message"),
    [
        ({"name": "fles"}, {}, "unknown data source 'fles'; did you mean 'files'"),
        ({"name": "dates", "exmples": 3}, {}, "no field 'exmples' to set; did you mean 'examples'"),
        ({"name": "dates", "examples": "3"}, {}, "config.data.examples='3' is of type str"),
        ({"name": "dates"}, {"szie": 3}, "vocabulary.szie: no such key; did you mean 'size'"),
        ({"name": "dates"}, {"lowercase": 1}, "config.vocabulary.lowercase=1 is of type int"),
    ],
)
def test_bad_config(data: dict[str, Any], vocabulary: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(data, vocabulary)
    assert message in str(caught.value)


def test_a_generated_source_and_sentences_without_translation() -> None:
    corpus = load(
        {"name": "dates", "examples": 50, "valid": 5},
        {"kind": "char", "size": 100, "min_frequency": 1},
    )
    assert isinstance(corpus, Corpus) and corpus.counts("train")["pairs"] == 50
    vocabularies = (corpus.source_vocabulary, corpus.target_vocabulary)
    examples = encode(vocabularies, [("3 march 1967", ""), ("4/5/6", "")])
    assert examples.packed("target")[0].tolist() == [EOS]


def test_the_fingerprint_sees_every_change() -> None:
    pairs = [("a", "b"), ("c", "d")]
    others = [
        [("a", "b")],
        pairs[::-1],
        [("ab", ""), ("c", "d")],
        [("a", "b"), ("c", "d ")],
        [("b", "a"), ("c", "d")],
    ]
    others += [[("a", "b"), ("c", "x")], [("a", "b"), ("x", "d")]]
    assert fingerprint(pairs) == fingerprint(iter(pairs))
    assert len({fingerprint(pairs), *map(fingerprint, others)}) == 8
