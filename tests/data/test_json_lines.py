"""Pairs of JSON lines."""

import json
from pathlib import Path

import pytest

from attnlab.data import SOURCES
from attnlab.data.json_lines import JsonLines
from tests.refusals import check_refused

RECORDS = [
    {"article": "Dogs bark.\nCats do not.", "summary": "On pets", "id": 3},
    {"article": "Es regnet…", "summary": "Wetter"},
]


def written(folder: Path, *lines: str) -> JsonLines:
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    return JsonLines(str(folder), source="article", target="summary")


def test_fields_are_pairs(tmp_path: Path) -> None:
    source = written(tmp_path, *map(json.dumps, RECORDS), "")
    pairs = [("Dogs bark. Cats do not.", "On pets"), ("Es regnet…", "Wetter")]
    assert source.pairs("train") == pairs and SOURCES.resolve("json") is JsonLines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "line 2: list, expected an object"),
        ('{"artikle": "a", "summary": "b"}', "no field 'article'; did you mean 'artikle'"),
        ('{"article": "a", "summary": 3}', "field 'summary' is 3; expected a text"),
        ('{"article": " ", "summary": "b"}', "field 'article' is ' '; expected a text"),
    ],
)
def test_what_is_no_pair_is_named(line: str, message: str, tmp_path: Path) -> None:
    check_refused(message, written(tmp_path, json.dumps(RECORDS[0]), line).pairs, "train")
