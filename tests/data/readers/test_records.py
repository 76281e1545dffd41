"""Rows of every form by the names of their columns, and lines of cells by what stands between them; what is
damaged is one line. Comments and widths are tested in `test_tagged.py`.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from attnlab.data.documents import BadSource, Corpus, find, pieces
from attnlab.data.readers.records import FORMS, form_of, records, split_lines
from attnlab.data.rows import find_tables
from tests.refusals import check_refused

ROWS = [{"text": "so, so", "n": 1}, {"text": 'say "no"', "n": 2}, {"text": "Ü", "n": 3}]
CSV = 'text,n\n"so, so",1\r\n"say ""no""",2\n\nÜ,3\n'
LINES = "\n".join(map(json.dumps, ROWS))


def zstd(content: bytes) -> bytes:
    return bytes(pyarrow.Codec("zstd").compress(content, asbytes=True))


def arrow(path: Path, table: Any, stream: bool = True) -> Path:
    new = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with new(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def saved(folder: Path, table: Any) -> Path:
    """As `datasets` saves a split."""
    folder.mkdir(parents=True)
    arrow(folder / "data-00000-of-00001.arrow", table)
    files = [{"filename": "data-00000-of-00001.arrow"}]
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    return folder


def with_classes(columns: dict[str, list[Any]], features: dict[str, Any]) -> Any:
    noted = json.dumps({"info": {"features": features}})
    return pyarrow.table(columns).replace_schema_metadata({"huggingface": noted})


WRITTEN: dict[str, bytes] = {
    "a.csv": CSV.encode("utf-8-sig"),
    "a.csv.gz": gzip.compress(CSV.encode(), mtime=0),
    "a.tsv": b'text\tn\nso, so\t1\nsay "no"\t2\n\xc3\x9c\t3\n',
    "a.jsonl": b"\xef\xbb\xbf" + LINES.encode(),
    "a.ndjson.zst": zstd(LINES.encode()),
    "a.json": LINES.encode() + b"\n\n",
}


@pytest.mark.quick
def test_every_form_has_the_same_rows(tmp_path: Path) -> None:
    """Packed or not; numbers of CSV and TSV are texts."""
    paths = []
    for name, content in WRITTEN.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    table = pyarrow.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet")
    paths += [tmp_path / "a.parquet", arrow(tmp_path / "stream.arrow", table)]
    paths.append(arrow(tmp_path / "file.arrow", table, stream=False))
    folder = saved(tmp_path / "saved", table)
    (folder / "data-00000-of-00002.arrow").touch()  # of another time
    assert find_tables(str(tmp_path), ["saved"], "test") == list(find([str(folder)]))
    paths += find([str(folder)])
    assert {form_of(path) for path in paths} == {*FORMS.values()}
    for path in paths:
        assert [row["text"] for _, row in records(path, ["text"])] == [r["text"] for r in ROWS]
        assert [int(row["n"]) for _, row in records(path)] == [1, 2, 3]
        check_refused("no column 'txt'; did you mean 'text'", list, records(path, ["txt"]))
    assert form_of(tmp_path / "a.parquet.gz") == form_of(tmp_path / "a.txt") == ""


def test_columns_within_others_and_names_of_classes(tmp_path: Path) -> None:
    """A number of a class is its name in a cell, a list or a column within another one, -1 none."""
    feature = {"names": ["O", "B"], "_type": "ClassLabel"}
    features = {"label": feature, "tags": {"feature": feature, "_type": "Sequence"}}
    columns = {"label": [1, -1], "tags": [[0, 1], []], "pair": [{"de": "ja"}, None]}
    objects = {"box": {"_type": "Value"}, "kind": feature}
    features |= {"all": {"feature": objects, "_type": "Sequence"}, "each": [objects]}
    columns |= {"all": [{"box": [2], "kind": [1]}, None], "each": [[{"box": 2, "kind": 0}], []]}
    path = arrow(tmp_path / "a.arrow", with_classes(columns, features))
    inner = [[*row.values()] for _, row in records(path, ["all.kind", "each.kind", "each.box"])]
    assert inner == [[["B"], ["O"], [2]], [None, [], []]]
    rows = [row for _, row in records(path, ["label", "tags", "pair.de"])]
    assert rows == [
        {"label": "B", "tags": ["O", "B"], "pair.de": "ja"},
        {"label": "", "tags": [], "pair.de": None},
    ]
    parquet.write_table(with_classes({"label": [7]}, features), tmp_path / "a.parquet")
    (row,) = records(tmp_path / "a.parquet")
    assert row == (f"{tmp_path}/a.parquet, row 1", {"label": ""})
    words = "a.arrow, row 1: no column 'pair.en'; did you mean 'pair'"
    check_refused(words, list, records(path, ["pair.en"]))
    table = pyarrow.table(columns)
    for noted in ("[]", '{"info": 1}', '{"info": {"features": {"a": {"_type": "ClassLabel"}}}}'):
        arrow(path, table.replace_schema_metadata({"huggingface": noted}))
        check_refused("a.arrow: the notes of `datasets` in it are damaged", list, records(path))


def test_a_field_within_another_one(tmp_path: Path) -> None:
    """Of lines of JSON; a null has none."""
    (tmp_path / "a.jsonl").write_text('{"a": {"b": "so"}}\n{"a": null}\n{"a.b": "o"}\n')
    assert [row["a.b"] for _, row in records(tmp_path / "a.jsonl", ["a.b"])] == ["so", None, "o"]
    corpus = Corpus((tmp_path / "a.jsonl",), field="a.b")
    (chunk,) = corpus.chunks()
    assert pieces(corpus, chunk) == ([("so", True), ("o", True)], 1)


@pytest.mark.parametrize(
    "state",
    ["{}", "[]", *(f'{{"_data_files": [{files}]}}' for files in ("", "1", '{"filename": "b"}'))],
)
def test_a_saved_folder_that_is_not_whole(state: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", pyarrow.table({"text": ["a"]}))
    (folder / "state.json").write_text(state)
    for read in (lambda: find_tables(str(tmp_path), ["saved"], "x"), lambda: find([str(folder)])):
        check_refused(r"state.json .*put back a good copy", read)


def test_a_stream_that_is_cut_between_batches(tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", pyarrow.table({"text": ["a"]}))
    path.write_bytes(path.read_bytes()[:-8])
    check_refused("a.arrow is cut off", list, records(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,n\na,b,c\n", "a.csv, line 2: 3 cell.s., the first line has 2"),
        ("a.csv", b'text\n"a', "a.csv, line 2: unexpected end of data; mend its quotes"),
        ("a.csv", b"text,text\na,b\n", "has 2 columns 'text'; name them apart"),
        ("a.csv", b"text,n\na\n", "a.csv, line 2: 1 cell.s., the first line has 2"),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-9], "a.csv.gz is damaged or no .gz"),
        ("a.jsonl", '{"text": "\u00e9"}'.encode("latin-1"), "a.jsonl: not UTF-8 .byte 0xe9."),
        ("a.tsv", "text\n".encode("utf-16"), "a.tsv: not UTF-8 .byte 0xff."),
        ("a.csv", b"text\n\xff\n", "a.csv: not UTF-8 .byte 0xff.; convert the file"),
        ("a.csv", b"", "no column 'text'"),
        ("a.jsonl", b'{"text": 1}\n[2]', "a.jsonl, line 2: list, expected an object"),
        ("a.jsonl", b'{"text": 1}\n{', "a.jsonl, line 2: no JSON that can be used"),
        ("a.json", b'[{"text": 1}, 2]', "a.json, line 1: list, expected an object"),
        ("a.csv.zst", b"text", "cannot read .*a.csv.zst"),
        ("a.csv.zst", zstd(CSV.encode())[:-5], "cannot read .*a.csv.zst"),
        ("a.arrow", b"text", "cannot read .*a.arrow as arrow"),
    ],
)
def test_what_is_damaged_is_one_line(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    check_refused(message, lambda: list(records(tmp_path / name, ["text"])))
    check_refused(r"cannot find|cannot read", list, records(tmp_path / f"none-{name}"))


# --- texts of a corpus ---


def texts(path: Path, field: str = "text") -> list[str]:
    return [text for chunk in Corpus((path,), field=field).chunks() for text in chunk.content]


def written(folder: Path, columns: list[Any], names: list[str]) -> Path:
    path = folder / "a.parquet"
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)
    return path


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
@pytest.mark.parametrize("packed", [False, True])
def test_types_that_are_texts_are_taken(kind: str, packed: bool, tmp_path: Path) -> None:
    values = pyarrow.array(["one", None, "Ü"], getattr(pyarrow, kind)())
    values = values.dictionary_encode() if packed and "view" not in kind else values
    assert texts(written(tmp_path, [values], ["text"])) == ["one", "", "Ü"]
    (tmp_path / "a.csv").write_text(CSV)
    assert texts(tmp_path / "a.csv") == [row["text"] for row in ROWS]


@pytest.mark.quick
@pytest.mark.parametrize("value", [b"a", 1, 0.5, True, ["a"], {"a": "b"}], ids=repr)
def test_all_other_types_are_refused_by_name(value: Any, tmp_path: Path) -> None:
    path = written(tmp_path, [pyarrow.array([value])], ["text"])
    with pytest.raises(BadSource, match=f"field 'text' is {type(value).__name__}, not a text"):
        texts(path)


def test_columns_of_one_name(tmp_path: Path) -> None:
    """Two that are asked for are refused; two others do no harm."""
    path = written(tmp_path, [pyarrow.array(["a"])] * 3, ["text", "n", "n"])
    assert texts(path) == ["a"]
    with pytest.raises(BadSource, match="has 2 columns 'n'; name them apart"):
        texts(path, "n")


def test_damage_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, [pyarrow.array(["a\xff".encode("latin-1")]).view("utf8")], ["text"])
    good = path.read_bytes()
    for bad in (good, b"PAR1" + good[9:], good[:-40], b"", good[:20] + b"\xff" * 9 + good[29:]):
        path.write_bytes(bad)
        with pytest.raises(BadSource, match="cannot read .*a.parquet as parquet"):
            texts(path)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("separator", "cells"),
    [
        ("auto", ["a b", "c"]),
        ("blanks", ["a", "b\tc"]),
        ("any", ["a", "b", "c"]),
        ("|", ["a b\tc"]),
    ],
)
def test_cells_by_separator(separator: str, cells: list[str]) -> None:
    assert [row.cells for row in split_lines(["a b\tc", " "], separator, "s")] == [cells, []]
    check_refused("s='tabs': .*did you mean 'tab'", split_lines, ["a"], "tabs", "s")
