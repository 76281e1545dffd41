"""Folders of shards that are not as they were written: one line each."""

import dataclasses
import json
import os
import shutil
import unittest.mock
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.data import shard_folder, text
from attnlab.data.shard_folder import digest, hashes, opened
from attnlab.data.vocabulary import Vocabulary
from attnlab.records.provenance import Changed
from tests.data.tiny_corpus import LEARNED, lines, shards, written
from tests.refusals import check_refused


def test_an_index_that_is_whole(tmp_path: Path) -> None:
    made = shards(tmp_path / "s", written(tmp_path / "a.txt"))
    assert opened(tmp_path / "s") == made and made.intact


def test_a_digest_is_of_the_pieces() -> None:
    one, same = (Vocabulary.train(lines(), **LEARNED) for _ in range(2))
    other = Vocabulary.train(lines(), **{**LEARNED, "size": 50})
    lower = Vocabulary.train(lines(), **{**LEARNED, "lowercase": True})
    assert digest(one) == digest(same)
    assert len({digest(one), digest(other), digest(lower)}) == 3


def _cut(path: Path, old: bytes = b"", new: bytes = b"") -> None:
    """Takes the last two bytes away, or puts others in the place of some."""
    content = path.read_bytes()
    path.write_bytes(content.replace(old, new) if old else content[:-2])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda s: (s / "00001.tokens").unlink(), r"00001\.tokens is missing"),
        (lambda s: _cut(s / "00001.tokens"), "has 1,398 bytes instead of 1,400"),
        (lambda s: _cut(s / "00000.documents"), r"00000\.documents has"),
        (lambda s: (s / "index.json").unlink(), r"has no index\.json; 'prepare --to="),
        (lambda s: _cut(s / "index.json"), r"index\.json is damaged"),
        (lambda s: _cut(s / "index.json", b'"skipped": 0', b'"skipped": 1'), "checksum does not"),
        (lambda s: shutil.rmtree(s), "is no folder; did you mean 'alt'"),
        (lambda s: _cut(s / "vocabulary.json"), r"vocabulary .* is damaged"),
    ],
)
def test_a_damaged_folder(tmp_path: Path, harm: Callable[[Path], object], message: str) -> None:
    shards(tmp_path / "all", written(tmp_path / "all.txt"))
    node = {"name": "shards", "directory": str(tmp_path), "train": "all"}
    (tmp_path / "alt").mkdir()
    harm(tmp_path / "all")
    check_refused(message, text.Texts.load, node, LEARNED, None, ("train",))


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shards that were written a while ago, and an empty cache of the user's."""
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    shards(tmp_path / "old", written(tmp_path / "a.txt"))
    for path in (tmp_path / "old").iterdir():
        os.utime(path, ns=(10**18, 10**18))
    return tmp_path / "old"


def read(folder: Path, split: str, part: str = "") -> text.Texts:
    node = {"name": "shards", "directory": str(folder.parent), split: folder.name + part}
    return text.Texts.load(node, LEARNED, None, (split,))


def overwrite(path: Path, **seal: bool) -> None:
    """Other bytes in the place of some, as many; with `seal` the index has their hashes."""
    content = bytearray(path.read_bytes())
    content[-8:] = b"\xff" * 8
    path.write_bytes(content)
    if seal:
        index = opened(path.parent)
        made = tuple(
            dataclasses.replace(shard, sha256=hashes(path.parent, number))
            for number, shard in enumerate(index.shards)
        )
        sealed = dataclasses.replace(index, shards=made).sealed()
        (path.parent / "index.json").write_text(json.dumps(dataclasses.asdict(sealed)))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("file", ["00001.tokens", "00000.documents"])
def test_other_content_of_the_same_size_has_changed(old: Path, file: str, split: str) -> None:
    read(old, split)
    overwrite(old / file)
    for _ in range(2):
        with pytest.raises(Changed, match=rf"{file} has changed since .* its 'prepare'"):
            read(old, split)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("00001.tokens", r"00001\.tokens has the id 65535, but the vocabulary has the 58 ids"),
        ("00000.documents", r"00000\.documents is no list of documents .* within the 700 ids"),
    ],
)
def test_sealed_content_that_cannot_be(old: Path, file: str, message: str) -> None:
    overwrite(old / file, seal=True)
    check_refused(message, read, old, "train")


def test_what_is_read_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that have passed are remembered, until they are others; for the test split never."""
    seen = unittest.mock.Mock(side_effect=hashes)
    monkeypatch.setattr(shard_folder, "hashes", seen)

    def reads(split: str, part: str = "") -> list[int]:
        seen.reset_mock()
        read(old, split, part)
        return [call.args[1] for call in seen.call_args_list]

    every = list(range(len(opened(old).shards)))
    assert reads("train", "[:10%]") == [0] and reads("valid", "[99%:]") == every[-1:]
    assert reads("train") == every[1:-1]
    assert reads("train") == reads("valid") == [] and reads("test") == every
    os.utime(old / "00001.documents")
    assert reads("train") == [1] == reads("train")  # too new to be remembered
    shutil.copy2(old / "00003.tokens", old / "copy")
    (old / "copy").replace(old / "00003.tokens")
    assert reads("valid") == [1, 3]
    overwrite(old / "00002.tokens")
    os.utime(old / "00002.tokens", ns=(10**18, 10**18))
    assert reads("train") == [1]  # which nobody can tell without reading
    for split in ("test", "train"):
        with pytest.raises(Changed, match=r"00002\.tokens"):
            read(old, split)
