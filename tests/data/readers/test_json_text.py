"""JSON of others is parsed within bounds, or refused in one line that names the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.data.readers.json_text import parse_json, read_json
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
