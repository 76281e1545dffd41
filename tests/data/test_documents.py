"""Corpora as chunks: nothing is lost or joined at their edges, whatever their size; and every
complaint.
"""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from attnlab.data import documents
from attnlab.data.documents import BadSource, Corpus, find, pieces, sample
from tests.refusals import check_refused

TEXT = "\ufeffone two\r\n\nthree Ü four\u2028five\nsix " + "seven " * 40 + "\nlast of all"
LINES = ["one two", "", "three Ü four\u2028five", "six " + "seven " * 40, "last of all"]


@pytest.fixture(params=[16, 50, 2**20])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(documents, "CHUNK", request.param)
    return int(request.param)


def texts(corpus: Corpus) -> tuple[list[str], int]:
    """The documents, put together, and how many records were left out."""
    actual, skipped, held = [], 0, ""
    for chunk in corpus.chunks():
        some, left = pieces(corpus, chunk)
        skipped += left
        for text, ended in some:
            held += text
            if ended:
                actual.append(held)
                held = ""
    assert not held
    return actual, skipped


@pytest.mark.quick
@pytest.mark.parametrize("pack", [None, gzip.compress, lzma.compress])
def test_lines(tmp_path: Path, size: int, pack: object) -> None:
    ending = {None: "", gzip.compress: ".gz", lzma.compress: ".xz"}[pack]
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(pack(TEXT.encode()) if callable(pack) else TEXT.encode())
    corpus = Corpus((path,))
    assert texts(corpus) == (LINES, 0)
    every = list(corpus.chunks())
    assert [one.last for one in every] == [False] * (len(every) - 1) + [True]
    assert every[-1].bytes_read == path.stat().st_size and (size > 100 or len(every) > 3)


def test_a_file_as_a_document(tmp_path: Path, size: int) -> None:
    paths = tuple(tmp_path / f"{name}.txt" for name in "ab")
    for path in paths:
        path.write_text(f"{path.name}\n{TEXT[1:]}\n", newline="")
    actual, _ = texts(Corpus(paths, unit="file"))
    assert actual == [f"{path.name}\n{TEXT[1:]}\n" for path in paths]
    paths[0].write_text("äöü€𝄞" * 30)  # characters are not cut
    assert texts(Corpus(paths[:1]))[0] == ["äöü€𝄞" * 30]


def test_json_lines(tmp_path: Path, size: int) -> None:
    records = [{"body": line, "n": 1} for line in LINES] + [{"body": None}]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, records)).encode()))
    actual, skipped = texts(Corpus((path,), field="body"))
    assert (actual, skipped) == ([line for line in LINES if line], 2)


def test_parquet(tmp_path: Path, size: int) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": [*LINES, None], "n": range(6)}), path)
    assert texts(Corpus((path,))) == ([line for line in LINES if line], 2)
    with pytest.raises(BadSource, match="no column 'txt'; did you mean 'text'"):
        texts(Corpus((path,), field="txt"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt", b"good\nb\xffd\n", "line 2: not UTF-8 .byte 0xff."),
        ("a.txt.gz", gzip.compress(b"some text" * 99, mtime=0)[:-9], "damaged or no .gz file"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', "line 2: no JSON"),
        ("a.jsonl", b'{"text": "\\ud83d"}', "line 1: no JSON that can be used .*surrogates"),
        ("a.jsonl", b'["a"]', "line 1: list, expected an object"),
        ("a.jsonl", b'{"text": 3}', "line 1: field 'text' is int, not a text"),
        ("a.jsonl", b'{"texts": "a"}', "no field 'text'; did you mean 'texts'"),
    ],
)
def test_what_is_wrong(tmp_path: Path, name: str, content: bytes, message: str, size: int) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadSource, match=message):
        texts(Corpus((tmp_path / name,)))


def test_files_are_found_by_name_and_by_pattern(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text("x")
    actual = find([str(tmp_path / "c.md"), str(tmp_path / "*.txt")])
    assert [path.name for path in actual] == ["c.md", "a.txt", "b.txt"]
    check_refused("twice", find, [str(tmp_path / name) for name in ("a.txt", "*.txt")])


def test_a_sample_is_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "CHUNK", 100)
    paths = tuple(tmp_path / name for name in ("a.txt", "b.txt"))
    for path, count in zip(paths, (3000, 1000), strict=True):
        path.write_text("".join(f"{path.stem}{number:04}\n" for number in range(count)))
    actual = list(sample(Corpus(paths), 2400))
    assert 2000 < sum(len(one) + 1 for one in actual) < 2800
    assert sum(one[0] == "b" for one in actual) == pytest.approx(len(actual) / 4, rel=0.2)
    first = [int(one[1:]) for one in actual if one[0] == "a"]
    assert min(first) < 100 and max(first) > 2500
    everything = list(sample(Corpus(paths), 10**6))
    assert len(everything) == 4000


def test_a_fingerprint_tells_texts_and_ways_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    seen = [Corpus((path,)).fingerprint(), Corpus((path,), unit="file").fingerprint()]
    path.write_text("two")
    seen.append(Corpus((path,)).fingerprint())
    assert len({json.dumps(one) for one in seen}) == 3
    assert seen[0]["files"][0]["bytes"] == 3
