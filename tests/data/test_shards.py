"""Ids on disk give the same texts, ids and counts as the source `text` in memory; folders that are
not what they say are refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data.blocks import Blocks
from attnlab.data.shard_folder import opened
from attnlab.data.shards import Ids, Stored, in_parts
from attnlab.data.streams import lanes
from attnlab.data.text import Texts
from attnlab.data.vocabulary import Vocabulary
from tests.data.test_tokenizer import byte_level
from tests.data.tiny_corpus import LEARNED, LENGTH, shards, written
from tests.refusals import check_refused

OTHER = "another vocabulary than that of this run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`all` and `other`, of one vocabulary, and the lines of `all`."""
    base = tmp_path_factory.mktemp("shards")
    shards(base / "all", written(base / "all.txt"))
    vocabulary = Vocabulary.load(base / "all" / "vocabulary.json")
    shards(base / "other", written(base / "other.txt", 30, seed=1), vocabulary=vocabulary)
    return base


def node(folder: Path, **parts: str) -> dict[str, Any]:
    named = {"train": "all", "valid": "other", "test": "all[50%:60%]"}
    return {"name": "shards", "directory": str(folder), **named, **parts}


SPLITS = ("train", "valid", "test")


def both(folder: Path) -> tuple[Texts, Texts]:
    """The shards, and the same lines read by the source `text`, whose vocabulary is equal."""
    plain = {"train": "all.txt", "valid": "other.txt", "test": "all.txt[50%:60%]"}
    return tuple(
        Texts.load(one, LEARNED, None, SPLITS)
        for one in (node(folder), {"name": "text", "directory": str(folder), **plain})
    )  # type: ignore[return-value]


@pytest.mark.quick
def test_they_are_what_text_in_memory_is(folder: Path) -> None:
    stored, plain = both(folder)
    assert stored.splits == plain.splits == SPLITS
    for split in SPLITS:
        mine, theirs = stored.ids[split], plain.ids[split]
        assert stored.counts(split) == plain.counts(split)
        assert stored.about(split).startswith(plain.about(split))
        assert stored.spelt(split) == plain.spelt(split)
        np.testing.assert_array_equal(stored.characters(split), plain.characters(split))
        np.testing.assert_array_equal(mine.offsets, theirs.offsets)
        np.testing.assert_array_equal(mine.ids[:], theirs.ids)
        assert len(mine) == len(theirs) and mine.pad == theirs.pad
        for index in (0, 7, len(mine) - 1, -1):
            np.testing.assert_array_equal(mine[index], theirs[index])
        assert stored.rows[split][3] == stored.vocabulary.normalize(plain.rows[split][3])
        assert list(stored.rows[split])[:9] == stored.rows[split][:9]
        rows = np.array([5, -1, 2])
        np.testing.assert_array_equal(mine.block(rows, 9), theirs.block(rows, 9))
    assert len(set(stored.fingerprints.values())) == 3


def test_ids_are_read_like_an_array(folder: Path) -> None:
    index = opened(folder / "all")
    every = np.concatenate([np.fromfile(one, "<u2") for one in sorted(folder.glob("all/*.tokens"))])
    begin, end = 300, len(every) - 50
    ids, expected = Ids(folder / "all", index, begin, end), every[begin:end].astype(np.int32)
    assert len(ids) == len(expected) > 3 * LENGTH
    place = np.random.default_rng(0).integers(-len(ids), len(ids), (20, 30))
    for at in (place, 5, -1, slice(None), slice(100, 2000), slice(9, 4), slice(-30, None)):
        np.testing.assert_array_equal(ids[at], expected[at])
    assert ids[place].dtype == ids[:].dtype == np.int32
    begins = np.array([0, -4, LENGTH - begin - 3, len(ids) - 5, len(ids) + 3, -50])
    wide = np.pad(expected, 100)
    for width in (1, 7, 1500):
        actual = ids.windows(begins, width)
        some = [np.pad(wide, (0, 2000))[100 + one : 100 + one + width] for one in begins]
        np.testing.assert_array_equal(actual, some)
    for wrong in (len(ids), np.array([0, -len(ids) - 1])):
        with pytest.raises(IndexError):
            ids[wrong]
    np.testing.assert_array_equal(np.concatenate(list(in_parts(ids))), expected)


@pytest.mark.parametrize("texts", ["joined", "in_turn", "packed"])
def test_batches_are_those_of_memory(folder: Path, texts: str) -> None:
    stored, plain = both(folder)
    for split in SPLITS:
        mine, theirs = (lanes(texts, one.ids[split], size=4, length=9) for one in (stored, plain))
        assert mine.batches_per_epoch == theirs.batches_per_epoch
        for step in (0, 1, mine.batches_per_epoch - 1):
            for name, values in theirs(step).items():
                np.testing.assert_array_equal(mine(step)[name], values)
    blocks = [Blocks(x.ids["train"].ids, size=4, length=9, seed=2) for x in (stored, plain)]
    np.testing.assert_array_equal(*(one(7)["target"] for one in blocks))


def test_the_beginning_is_read_without_the_rest(folder: Path) -> None:
    """Nothing asks for the offsets of all documents on the way to batches and pictures."""
    stored = Texts.load(node(folder), LEARNED, None, ("train",))
    ids = stored.ids["train"]
    lanes("joined", ids, size=4, length=9)(3)
    next(iter(stored.rows["train"]))
    assert isinstance(ids, Stored) and "offsets" not in vars(ids)
    assert len([one for one in ids.ids._files if one is not None]) < len(ids.ids._files)


def test_a_vocabulary_of_the_run(folder: Path, tmp_path: Path) -> None:
    loaded = Texts.load(node(folder), LEARNED, None, ("train",))
    loaded.save(tmp_path)
    again = Texts.load(node(folder), LEARNED, tmp_path, SPLITS)
    assert again.fingerprints["train"] == loaded.fingerprints["train"]
    shards(tmp_path / "s", written(tmp_path / "a.txt", 90, seed=5))
    other = node(folder, test=str(tmp_path / "s"))
    check_refused(OTHER, Texts.load, other, LEARNED, tmp_path, SPLITS)


@pytest.mark.parametrize("settings", [{"kind": "word"}, {"size": 91}, {"reserved": 1}])
def test_the_vocabulary_is_that_of_the_folder(
    folder: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever the config says, for a new run and for one that goes on."""
    loaded = Texts.load(node(folder), LEARNED | settings, None, ("train",))
    loaded.save(tmp_path)
    again = Texts.load(node(folder), LEARNED | settings, tmp_path, ("train",))
    assert loaded.vocabulary.settings == again.vocabulary.settings == LEARNED
    words = f", the shards' vocabulary: bpe, {loaded.vocabulary.size}"
    assert loaded.about("train").endswith(words)


def test_the_tokenizer_of_a_model_must_be_that_of_the_folder(folder: Path, tmp_path: Path) -> None:
    settings = {**LEARNED, "kind": "tokenizer", "file": str(byte_level(tmp_path))}
    check_refused(OTHER, Texts.load, node(folder), settings, None, ("train",))


def test_parts_that_are_none(folder: Path) -> None:
    for part, message in (("other[0%:1%]", "no document of the 30"), ("all[9%:3%]", "expected 0")):
        check_refused(message, Texts.load, node(folder, test=part), LEARNED, None, ("test",))
