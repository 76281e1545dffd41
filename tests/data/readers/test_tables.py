"""Columns of Parquet files by type; those of lines are tested in test_conll.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnlab.data.documents import BadSource, Corpus
from attnlab.data.readers.tables import KINDS, parquet_texts
from attnlab.errors import UserError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
TEXTS = ["one", None, "Ü"]


def written(folder: Path, columns: list[Any], names: list[str]) -> Path:
    path = folder / "a.parquet"
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)
    return path


@pytest.mark.parametrize(
    ("kind", "packed"),
    [*((kind, False) for kind in KINDS), ("string", True), ("large_string", True)],
)
def test_types_that_are_texts_are_taken(kind: str, packed: bool, tmp_path: Path) -> None:
    values = pyarrow.array(TEXTS, getattr(pyarrow, kind)())
    values = values.dictionary_encode() if packed else values
    path = written(tmp_path, [values], ["text"])
    assert list(parquet_texts(path, "text")) == ["one", "", "Ü"]


@pytest.mark.quick
@pytest.mark.parametrize("value", [b"a", 1, 0.5, True, None, ["a"], {"a": "b"}], ids=repr)
def test_all_other_types_are_refused_by_name(value: Any, tmp_path: Path) -> None:
    path = written(tmp_path, [column := pyarrow.array([value])], ["text"])
    kind = str(column.type).partition("<")[0]
    with pytest.raises(UserError, match=f"field 'text' is {kind}.*, not a text"):
        list(parquet_texts(path, "text"))


def test_columns_of_one_name(tmp_path: Path) -> None:
    """Two that are asked for are refused; two others do no harm."""
    path = written(tmp_path, [pyarrow.array(["a"])] * 3, ["text", "n", "n"])
    assert list(parquet_texts(path, "text")) == ["a"]
    with pytest.raises(UserError, match="has 2 fields 'n'; name them apart"):
        list(parquet_texts(path, "n"))


def test_damage_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, [pyarrow.array(["a\xff".encode("latin-1")]).view("utf8")], ["text"])
    good = path.read_bytes()
    for bad in (good, b"PAR1" + good[9:], good[:-40], b"", good[:20] + b"\xff" * 9 + good[29:]):
        path.write_bytes(bad)
        with pytest.raises(BadSource, match="a.parquet is damaged"):
            list(Corpus((path,)).chunks())
