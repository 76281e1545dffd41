"""Shards of a corpus are the same whoever makes them and however often that is interrupted."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnlab.data import documents
from attnlab.data.documents import BadSource, Corpus
from attnlab.data.preparing import Asked, Preparation, prepare
from attnlab.data.shard_folder import opened
from attnlab.data.vocabulary import Vocabulary
from attnlab.records.locks import RunLock
from tests.data.tiny_corpus import LEARNED, LENGTH, contents, lines, shards, written
from tests.refusals import check_refused


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    monkeypatch.setattr(documents, "CHUNK", 1000)
    return written(tmp_path / "a.txt")


@pytest.mark.quick
def test_what_is_in_it(tmp_path: Path, corpus: Corpus) -> None:
    index = shards(tmp_path / "s", corpus)
    vocabulary = Vocabulary.load(tmp_path / "s" / "vocabulary.json")
    expected = vocabulary.packed(lines())
    read = [np.fromfile(path, "<u2") for path in sorted((tmp_path / "s").glob("*.tokens"))]
    np.testing.assert_array_equal(np.concatenate(read), expected.ids)
    assert {len(one) for one in read[:-1]} == {LENGTH} and len(read) == len(index.shards) > 4
    assert index.total("tokens") == len(expected.ids) and index.total("documents") == 300
    assert index.total("characters") == sum(len(vocabulary.normalize(x)) + 1 for x in lines())
    assert index.total("unknown") == 0 and index.dtype == "uint16"
    assert index.source["files"][0]["name"] == "a.txt" and index.special["eos"] == 2
    assert sorted(contents(tmp_path / "s")) == sorted(
        ["index.json", "vocabulary.json"]
        + [f"{n:05}.{kind}" for n in range(len(read)) for kind in ("tokens", "documents")]
    )


class Killed(BaseException):
    pass


@pytest.mark.parametrize("length", [LENGTH, 97])
def test_it_goes_on_wherever_it_was_stopped(tmp_path: Path, corpus: Corpus, length: int) -> None:
    shards(tmp_path / "whole", corpus, length=length, processes=2)  # which is no matter
    count = sum(1 for _ in corpus.chunks())
    asked, notes = Asked(corpus, dict(LEARNED), length=length), list[str]()
    seen = []

    def stop(after: int) -> None:
        left = [after]

        def tell(told: Preparation) -> None:
            seen.append(told)
            left[0] -= 1
            if not left[0]:
                raise Killed

        prepare(tmp_path / "s", asked, 1, tell, notes.append)

    for after in (1, 2, 1, 3, 5):
        with pytest.raises(Killed):
            stop(after)
        check_refused("not prepared to its end", opened, tmp_path / "s")
    assert not any("made again" in note for note in notes)
    stop(count + 1)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")
    assert seen[-1].ids == opened(tmp_path / "s").total("tokens")


def test_a_shard_that_has_changed_is_made_again(tmp_path: Path, corpus: Corpus) -> None:
    shards(tmp_path / "whole", corpus)

    def tell(told: Preparation) -> None:
        if told.ids > 4 * LENGTH:
            raise Killed

    asked, notes = Asked(corpus, dict(LEARNED), length=LENGTH), list[str]()
    with pytest.raises(Killed):
        prepare(tmp_path / "s", asked, 1, tell, notes.append)
    (tmp_path / "s" / "00002.tokens").write_bytes(b"torn")
    prepare(tmp_path / "s", asked, 1, lambda told: None, notes.append)
    assert "2 shards are there" in " ".join(notes) and "00002.tokens has changed" in " ".join(notes)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_a_finished_folder_is_only_checked(tmp_path: Path, corpus: Corpus) -> None:
    shards(tmp_path / "s", corpus)
    before = contents(tmp_path / "s")
    notes: list[str] = []
    prepare(tmp_path / "s", Asked(corpus, dict(LEARNED), length=LENGTH), 1, print, notes.append)
    assert "complete" in notes[0] and contents(tmp_path / "s") == before
    (tmp_path / "s" / "00001.tokens").write_bytes(bytes(2 * LENGTH))
    check_refused(r"00001\.tokens.* has changed", shards, tmp_path / "s", corpus)


def test_the_vocabulary_of_another_folder(tmp_path: Path, corpus: Corpus) -> None:
    shards(tmp_path / "s", corpus)
    vocabulary = Vocabulary.load(tmp_path / "s" / "vocabulary.json")
    other = written(tmp_path / "b.txt", 40, seed=1)
    index = shards(tmp_path / "t", other, vocabulary=vocabulary)
    assert index.vocabulary["sha256"] == opened(tmp_path / "s").vocabulary["sha256"]
    shards(tmp_path / "t", other, vocabulary=vocabulary)
    check_refused("from another vocabulary", shards, tmp_path / "t", other)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"length": 9}, "another length of shards"),
        ({"vocabulary": {**LEARNED, "size": 80}}, "another vocabulary"),
        ({"sample": 3}, "another vocabulary"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_another_command(
    tmp_path: Path, corpus: Corpus, how: dict[str, object], message: str, finished: bool
) -> None:
    shards(tmp_path / "s", corpus)
    if not finished:
        (tmp_path / "s" / "index.json").unlink()
        plan = Asked(corpus, dict(LEARNED), length=LENGTH).plan(corpus.fingerprint())
        (tmp_path / "s" / "plan.json").write_text(json.dumps(plan))
    before = contents(tmp_path / "s")
    check_refused(message, shards, tmp_path / "s", corpus, **how)
    corpus.files[0].write_text("another text\n" * 9)
    check_refused("another text or another way to read it", shards, tmp_path / "s", corpus)
    assert contents(tmp_path / "s") == before


@pytest.mark.parametrize("there", [False, True])
def test_bad_text_leaves_nothing(tmp_path: Path, corpus: Corpus, there: bool) -> None:
    vocabulary = Vocabulary.train(lines(), **LEARNED)
    corpus.files[0].write_bytes(b"fine it is\n" * 400 + b"\xff\n")
    if there:
        (tmp_path / "s").mkdir()
    with pytest.raises(BadSource, match="line 401"):
        shards(tmp_path / "s", corpus, vocabulary=vocabulary, length=100)
    assert (contents(tmp_path / "s") == {}) if there else not (tmp_path / "s").exists()


def test_folders_that_are_taken(tmp_path: Path, corpus: Corpus) -> None:
    check_refused("has other files", shards, tmp_path, corpus)
    with RunLock(tmp_path / "s"):
        check_refused("by another process", shards, tmp_path / "s", corpus)


def test_records_without_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ["", "a b", None, "c"]))
    learned = {**LEARNED, "kind": "char", "min_frequency": 1}
    index = shards(tmp_path / "s", Corpus((path,)), vocabulary=learned)
    assert (index.skipped, index.total("documents"), index.total("tokens")) == (2, 2, 6)
    path.write_text('{"text": ""}\n')
    vocabulary = Vocabulary.train(["a b"], **learned)
    with pytest.raises(BadSource, match="no document"):
        shards(tmp_path / "t", Corpus((path,)), vocabulary=vocabulary)
