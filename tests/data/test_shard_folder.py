"""Folders of shards that are not as they were written: one line each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.data import text
from attnlab.data.shard_folder import digest, opened
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from tests.data.tiny_corpus import LEARNED, lines, shards, written


def test_an_index_that_is_whole(tmp_path: Path) -> None:
    made = shards(tmp_path / "s", written(tmp_path / "a.txt"))
    assert opened(tmp_path / "s") == made and made.whole


def test_a_digest_is_of_the_pieces() -> None:
    one, same = (Vocabulary.train(lines(), **LEARNED) for _ in range(2))
    other = Vocabulary.train(lines(), **{**LEARNED, "size": 50})
    lower = Vocabulary.train(lines(), **{**LEARNED, "lowercase": True})
    assert digest(one) == digest(same)
    assert len({digest(one), digest(other), digest(lower)}) == 3


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda s: (s / "00001.tokens").unlink(), r"00001\.tokens is missing"),
        (lambda s: _cut(s / "00001.tokens"), "has 1,398 bytes instead of 1,400"),
        (lambda s: _cut(s / "00000.documents"), r"00000\.documents has"),
        (lambda s: (s / "index.json").unlink(), r"has no index\.json; 'prepare --to="),
        (lambda s: _cut(s / "index.json"), r"index\.json is damaged"),
        (
            lambda s: (s / "index.json").write_text(
                (s / "index.json").read_text().replace('"skipped": 0', '"skipped": 1')
            ),
            "checksum does not match",
        ),
        (lambda s: shutil.rmtree(s), "is no folder; did you mean 'alt'"),
        (lambda s: _cut(s / "vocabulary.json"), r"vocabulary .* is damaged"),
    ],
)
def test_a_folder_that_is_damaged(
    tmp_path: Path, harm: Callable[[Path], object], message: str
) -> None:
    shards(tmp_path / "all", written(tmp_path / "all.txt"))
    node = {"name": "shards", "directory": str(tmp_path), "train": "all"}
    (tmp_path / "alt").mkdir()
    harm(tmp_path / "all")
    with pytest.raises(UserError, match=message) as caught:
        text.load(node, LEARNED, None, ("train",))
    assert "\n" not in str(caught.value)
