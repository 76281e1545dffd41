"""JSON of others is parsed within bounds, or refused in one line that names the file; its lines are pairs;
and files that hold their own hash show their damage.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.data import SOURCES
from attnlab.data.json_files import JsonLines, digest_of, parse_json, read_json
from attnlab.data.learned import Learned, has_learned, load_vocabularies
from tests.refusals import check_refused


@pytest.mark.quick
@pytest.mark.parametrize(
    "value", [{"a": [1, -0.1, None, True, "ü😀"]}, [], "", 2**63 - 1, -(2**63)]
)
def test_values_are_those_of_the_standard_parser(value: Any) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert parse_json(text, "f") == value
        assert parse_json(b"\xef\xbb\xbf" + text.encode(), "f") == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        (b'"\xff"', "utf-8"),
        ("[" * 10_000 + "]" * 10_000, "nested too deeply"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested too deeply"),
        ("[NaN]", "NaN is no finite number"),
        ("[-Infinity]", "-Infinity is no finite"),
        ("1e400", "no finite number"),
        ("1" + "0" * 400, "larger than any number"),
        (str(2**64), "larger than any number"),
        ("1" * 5000, "no JSON"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' stands twice"),
        ('"\\ud83d"', "surrogates"),
        ('{"\\udc00": 1}', "surrogates"),
        ('[["x\\ud83dx"]]', "position"),
    ],
)
def test_what_is_refused(text: str | bytes, words: str) -> None:
    check_refused(f"^there.json, line 7: .*{words}", parse_json, text, "there.json, line 7")


def test_a_whole_surrogate_pair_is_a_character_and_the_bound_of_depth_is_allowed() -> None:
    assert parse_json('"\\ud83d\\ude00"', "f") == "😀"
    value = parse_json("[" * 64 + "]" * 64, "f")
    assert json.dumps(value) == "[" * 64 + "]" * 64


def test_files_hold_the_kind_asked_for(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    assert read_json(tmp_path / "list.json", list) == [1]
    check_refused(r"list\.json holds no JSON object", read_json, tmp_path / "list.json")
    check_refused(r"cannot read .*none\.json", read_json, tmp_path / "none.json")


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


LABELS = Learned(classes=("no", "yes"), sentences=2)
IMAGES = Learned(classes=("a", "b"), shape=(2, 3, 1), mean=(0.5,), deviation=(0.25,))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("learned", "part", "verb", "its"),
    [(LABELS, "labels", "are", "their"), (IMAGES, "images", "is", "its")],
)
def test_what_was_kept_and_is_damaged(
    tmp_path: Path, learned: Learned, part: str, verb: str, its: str
) -> None:
    learned.save(tmp_path)
    assert Learned.load(tmp_path, (part,)) == learned and has_learned(tmp_path, (part,))
    path = tmp_path / "vocabulary" / f"{part}.json"
    path.write_text(path.read_text().replace(learned.classes[1], "c"))
    words = rf"{part}.json {verb} damaged \({its} checksum does not match\); put back a good copy"
    check_refused(words, Learned.load, tmp_path, (part,))
    for content in ('{"labels"', json.dumps({"classes": "ab", "labels": 3})):
        path.write_text(content)
        words = f"{part}.json {verb} damaged .*put back a good copy"
        check_refused(words, Learned.load, tmp_path, (part,))
    path.unlink()
    check_refused(f"cannot read .*{part}.json", Learned.load, tmp_path, (part,))
    check_refused(r"cannot read the vocabulary .*source\.json", load_vocabularies, tmp_path)


def test_a_digest_is_of_the_values() -> None:
    assert digest_of({"a": 1, "b": [2]}) == digest_of(json.loads('{"b":[2], "a" :1}'))
    assert digest_of({"a": 1}) != digest_of({"a": 2})
