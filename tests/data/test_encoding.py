"""Chunks to ids, here and in other processes."""

from pathlib import Path

import numpy as np
import pytest

from attnlab.data import documents, encoding
from attnlab.data.documents import BadSource, Corpus
from attnlab.data.encoding import Encoder, encode_chunks
from attnlab.data.vocabulary import EOS, Special, Vocabulary
from tests.data.tiny_corpus import LEARNED, lines, written


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    monkeypatch.setattr(documents, "CHUNK", 1000)
    return written(tmp_path / "a.txt")


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_ids_ends_and_characters(corpus: Corpus, kind: str) -> None:
    vocabulary = Vocabulary.train(lines(), **{**LEARNED, "kind": kind, "min_frequency": 1})
    encode = Encoder(corpus, vocabulary)
    every = [encode(chunk) for chunk in corpus.chunks()]
    assert len(every) > 10
    expected = vocabulary.packed(lines())
    np.testing.assert_array_equal(np.concatenate([one.ids for one in every]), expected.ids)
    assert every[0].ids.dtype == np.uint16
    ended = np.concatenate([one.ended for one in every])
    assert ended.sum() == len(lines()) < len(ended)  # the long one came in pieces
    for one in every:
        assert (one.ids[one.ends[one.ended] - 1] == EOS).all() and one.ends[-1] == len(one.ids)
    characters = sum(int(one.characters.sum()) for one in every)
    assert characters == sum(len(vocabulary.normalize(text)) + 1 for text in lines())


def test_what_is_wrong_in_another_process_is_told_here(corpus: Corpus, tmp_path: Path) -> None:
    Vocabulary.train(lines(), **LEARNED).save(tmp_path / "v.json")
    corpus.files[0].write_bytes(b"fine\n" * 300 + b"\xff\n" + b"fine\n" * 300)
    with pytest.raises(BadSource, match="line 301: not UTF-8"):
        list(encode_chunks(corpus, tmp_path / "v.json", corpus.chunks(), 2))


def test_a_tokenizer_that_writes_the_end_of_text_itself(corpus: Corpus) -> None:
    vocabulary = Vocabulary.train(lines(), **LEARNED)
    vocabulary.special = Special(eos=int(vocabulary.encode_all(["dog"])[0][0]))  # type: ignore[misc]
    with pytest.raises(BadSource, match="of ordinary text"):
        list(map(Encoder(corpus, vocabulary), corpus.chunks()))


def test_a_killed_process(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Vocabulary.train(lines(), **LEARNED).save(tmp_path / "v.json")
    worker = encoding._Worker(corpus, tmp_path / "v.json")
    worker._process.kill()
    with pytest.raises(Exception, match=r"was killed \(exit code -9\)"):
        worker.receive()
    worker.stop()
