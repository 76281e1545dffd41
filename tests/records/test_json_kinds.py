"""JSON into kinds: what passes, and the one line for what does not. One version for each format of
records: older ones are read as a table says, newer ones refused.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from attnlab.experiments.plan import Plan
from attnlab.records.json_kinds import Damaged, Finite, FolderName, Natural, fit, parsed, read
from attnlab.records.manifest import Manifest
from tests.experiments.synthetic import edit, sweep
from tests.refusals import check_refused


@dataclasses.dataclass(frozen=True)
class Inner:
    name: FolderName
    weights: Mapping[str, Finite]


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    seeds: tuple[Natural, ...]
    note: str | None = None


class Start(TypedDict):
    event: Literal["start"]
    time: float


class End(TypedDict):
    event: Literal["end"]
    step: NotRequired[Natural]


@pytest.mark.quick
def test_what_fits_comes_back_as_its_kind() -> None:
    """Dataclasses at any depth, tuples for lists, an int as a float; of a `TypedDict` what it does
    not name stays.
    """
    text = '{"inner": {"name": "a-1", "weights": {"x": 1, "y": -0.5}}, "seeds": [0, 3]}'
    assert read(text, Outer) == Outer(Inner("a-1", {"x": 1, "y": -0.5}), (0, 3))
    assert fit({"event": "end", "more": [1]}, Start | End) == {"event": "end", "more": [1]}
    assert math.isnan(parsed("NaN")) and parsed(b'"\xc3\xbc \\ud83d\\ude00"') == "ü 😀"
    assert fit(None, Inner | None) is None


def outer(**inner: Any) -> dict[str, Any]:
    """The JSON of an `Outer` whose inner one has other fields."""
    return {"inner": {"name": "a", "weights": {}, **inner}, "seeds": []}


NO_JSON: list[tuple[str | bytes, str]] = [
    ("", "Expecting value: line 1 column 1"),
    (b"\xff", "can't decode byte 0xff"),
    ("[" * 100_000, "nested too deeply"),
    ("[" * 80 + "]" * 80, "nested too deeply"),
    ("2" * 20, "larger than any number that belongs here"),
    ("-" + "1" * 5000, "limit"),
    (r'"\ud800"', "surrogates not allowed"),
    (b'"\xed\xa0\x80"', "can't decode byte"),
]


def test_what_is_no_json() -> None:
    for text, words in NO_JSON:
        with pytest.raises(Damaged, match=words) as raised:
            parsed(text)
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 200


UNFIT = [
    ([], Outer, r"the whole of it is \[\], expected an object"),
    ({"seeds": []}, Outer, "inner is missing"),
    (outer(x=1), Outer, "inner.x is not known"),
    (outer(name="../a"), Outer, 'inner.name is "../a", expected the name of a folder'),
    (outer(name=".."), Outer, 'inner.name is ".."'),
    (outer(name="ü" * 200), Outer, "inner.name is .*[.][.][.], expected the name of a folder"),
    (outer(weights={"x": math.inf}), Outer, "inner.weights.x is Infinity, expected a finite"),
    ({**outer(), "seeds": [0, True]}, Outer, r"seeds\[1\] is true, expected a whole number"),
    ({**outer(), "seeds": [-1]}, Outer, r"seeds\[0\] is -1, expected a whole number from 0"),
    ({**outer(), "seeds": [1.0]}, Outer, r"seeds\[0\] is 1.0, expected a whole number"),
    ({**outer(), "note": 1}, Outer, "note is 1, expected a text"),
    ({"event": "start"}, Start | End, "time is missing"),
    ({"event": "end", "step": 1.5}, Start | End, "step is 1.5"),
    ({"event": "x"}, Start | End, "event is \"x\", expected 'end'"),
    (None, dict[str, Any], "the whole of it is null, expected an object"),
    ({}, list[int], "expected a list"),
]


@pytest.mark.parametrize(("value", "kind", "words"), UNFIT)
def test_what_does_not_fit_is_named_with_its_place(value: Any, kind: Any, words: str) -> None:
    with pytest.raises(Damaged, match=words):
        fit(value, kind)


ROOT = Path(__file__).resolve().parents[2]


HEADS = pytest.mark.parametrize("head", [Manifest, Plan])


def written(directory: Path, head: Any, **fields: object) -> Path:
    """The head of a record of version 1 with other fields."""
    (path,) = sweep(directory, {"a": (0.9,)}).rglob(f"{head.__name__.lower()}.json")
    edit(path, **fields)
    return path


@pytest.mark.quick
@HEADS
def test_a_record_without_a_version_is_of_the_first_and_stays_so(head: Any, tmp_path: Path) -> None:
    path = written(tmp_path, head)
    path.write_text(path.read_text().replace('"version": 1,', ""))
    for version in (1, 2):
        actual = head.read(path.parent)
        assert actual.version == version
        actual.write(path.parent)
        assert next(iter(json.loads(path.read_text()).items())) == ("version", version)
        edit(path, version=2)


@HEADS
@pytest.mark.parametrize("version", [0, 3, "2"])
def test_another_version_is_refused(version: object, head: Any, tmp_path: Path) -> None:
    """Whatever else is there."""
    path = written(tmp_path, head, version=version, unknown=1)
    words = f"is of version {version}, and this attnlab reads 1 to 2: use the attnlab that wrote it"
    check_refused("is damaged" if version == "2" else words, head.read, path.parent)


def test_the_page_on_reports_decides_on_all_that_an_older_record_may_lack() -> None:
    """Each is taken, translated, or refused; what the code reads beside version 2 stands there."""
    page = (ROOT / "docs" / "report.md").read_text()
    rows = re.findall(r"^\| (run|sweep) \| (.*) \| (\w+).* \|$", page, re.MULTILINE)
    assert {made for *_, made in rows} == {"taken", "translated", "refused"} and len(rows) == 19
    names = " ".join(lacking for _, lacking, _ in rows)
    for name in ("attempts", "items", "digests", "look", "looks", "examples"):
        assert re.search(rf"\b{name}\.\w+", names), name
