"""JSON into kinds: what passes, and the one line for what does not."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from attnlab.records.json_kinds import Damaged, Finite, FolderName, Natural, fit, parsed, read


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
