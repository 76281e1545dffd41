"""Names and dotted paths lead to components, whose fields are built from a config, each of its type."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import flax.linen as nn
import pytest

from attnlab.attention.scores import SCORES
from attnlab.config.annotations import check_type
from attnlab.config.registry import Table, build, fields
from attnlab.config.tree import defaults
from attnlab.errors import UserError
from tests.refusals import check_refused


@dataclasses.dataclass
class Plain:
    """A component with a field that code supplies and some that the config sets."""

    width: int
    hidden: int = 8
    rate: float = 0.5
    kind: Literal["one", "two"] = "one"
    sizes: tuple[int, ...] = (1, 2)
    limit: int | None = None
    activation: Callable[[float], float] = abs
    other: Literal["x"] | None = None


class Module(nn.Module):
    """A linen module: `name` and `parent` are linen's own, not configuration."""

    vocabulary: int
    hidden: int = 4


def function(steps: int, peak: float = 1e-3, **rest: Any) -> str:
    """A function is a component too."""
    return f"{steps} {peak}"


PLACES = {name.lower(): f"{__name__}:{name}" for name in ("Plain", "Module", "function")}
TABLE = Table("thing", {**PLACES, "gone": "no.such:X", "holder": f"{__name__}:Holder"})


@dataclasses.dataclass
class Holder:
    """A component with parts."""

    part: Any
    spare: Any = None

    parts: ClassVar[Mapping[str, Table]] = {"part": TABLE, "spare": TABLE}


@pytest.mark.quick
def test_names_in_order_and_what_they_lead_to() -> None:
    assert TABLE.names() == ["plain", "module", "function", "gone", "holder"]
    assert TABLE.resolve("plain") is Plain
    assert TABLE.resolve("collections:OrderedDict").__name__ == "OrderedDict"
    assert defaults(TABLE.resolve("module")) == {"hidden": 4}
    assert defaults(TABLE.resolve("function")) == {"peak": 1e-3}


NOWHERE = [
    ("plian", "unknown thing 'plian'; did you mean 'plain'?"),
    ("", "thing '': a name is needed; choose from: plain, module"),
    (None, "thing None: a name is needed"),
    (3, "thing 3: a name is needed"),
    ("gone", "thing 'gone': cannot import 'no.such': No module named 'no'"),
    ("no_such_module:X", "cannot import 'no_such_module'"),
    ("collections:Nothing", "'collections:Nothing': 'collections' has no attribute 'Nothing'"),
]


@pytest.mark.parametrize(("name", "words"), NOWHERE)
def test_names_that_lead_nowhere(name: Any, words: str) -> None:
    check_refused(words, TABLE.resolve, name)


@pytest.mark.parametrize("thing", ["numpy.zeros(3)", "None"])
def test_an_attribute_that_users_code_lacks_is_told_with_its_line(
    thing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_thing.py").write_text(f"import numpy\n\n({thing}).Thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    check_refused(r"own_thing\.py:3: .* no attribute 'Thing'", TABLE.resolve, "own_thing:Thing")


def test_fields_are_the_parameters_without_those_of_linen() -> None:
    assert fields(Module) == {"vocabulary": inspect.Parameter.empty, "hidden": 4}
    assert list(fields(Plain))[:3] == ["width", "hidden", "rate"]
    assert fields(function) == {"steps": inspect.Parameter.empty, "peak": 1e-3}


@pytest.mark.quick
def test_build_binds_fields_and_parts_and_leaves_the_rest_to_code() -> None:
    fields = {"hidden": 3, "sizes": [4, 5], "rate": 1, "limit": 7, "kind": "two"}
    made = build(TABLE, {"name": "plain", **fields}, "x")(width=2)
    assert made == Plain(2, 3, 1, "two", (4, 5), 7)
    assert build(TABLE, {"name": "function"}, "x")(steps=9) == "9 0.001"
    held = build(TABLE, {"name": "holder", "part": {"name": "module", "hidden": 5}}, "x")()
    assert held.spare is None and held.part(vocabulary=6).hidden == 5 and held.part.func is Module


HOLDER = {"name": "holder", "part": {"name": "plain", "hidden": None}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "plain", "hiden": 3}, ": plain has no field 'hiden' to set; did you mean 'hidden'?"),
    ({"name": "plain", "width": 3}, ": plain has no field 'width' to set"),  # code supplies it
    ({"name": "module", "parent": 3}, ": module has no field 'parent' to set; choose from: hidden"),
    ({"name": "plain", "hidden": "3"}, ".hidden='3' is of type str, expected int"),
    ({"name": "plain", "hidden": True}, ".hidden=True is of type bool, expected int"),
    ({"name": "plain", "hidden": 3.0}, ".hidden=3.0 is of type float, expected int"),
    ({"name": "plain", "kind": "tow"}, ".kind='tow'; did you mean 'two'"),
    ({"name": "plain", "limit": "x"}, ".limit='x' is of type str, expected int or None"),
    (HOLDER, ".part.hidden=None is of type NoneType, expected int"),
]


@pytest.mark.parametrize(("spec", "words"), WRONG)
def test_build_names_what_is_wrong(spec: dict[str, Any], words: str) -> None:
    check_refused(f"^a.b{words}", build, TABLE, spec, "a.b")
    check_refused("thing '': a name is needed", build, TABLE, {"hidden": 3}, "a.b")


ABC = Literal["a", "b", 3]


TYPES: list[tuple[Any, list[Any], list[Any]]] = [
    (int, [1], [1.0, True]),
    (float, [1], [True]),
    (bool, [True], [1]),
    (str, ["a"], [1, None]),
    (None, [None], [0]),
    (type(None), [None], []),
    (int | None, [None, 1], ["1"]),
    (int | float, [1.5], [True]),
    (ABC, ["a", 3], [3.0, "c"]),
    (Literal[1], [1], [True]),
    (Literal[True], [True], [1]),
    (Literal["a"] | None, [None, "a"], ["b"]),
    (tuple[int, ...], [(1, 2), [1, 2]], [1]),
    (tuple[str, ...], [("a",)], ["ab"]),
    (Callable[..., Any], ["anything"], []),  # what a config cannot hold is not checked
    (Any, [3], []),
    (Mapping[str, int], [{}], []),
]
"""Types, and values that fit them and do not."""


@pytest.mark.quick
def test_types() -> None:
    for hint, fitting, others in TYPES:
        for value in fitting:
            check_type(value, hint, "x")
        for value in others:
            check_refused("^x=", check_type, value, hint, "x")


MESSAGES = [
    ("c", ABC, "x='c'; choose from: a, b"),
    (1.5, ABC, "x=1.5 is of type float, expected 'a' or 'b' or 3"),
    (1.5, Literal["a"] | None, "x=1.5 is of type float, expected 'a' or None"),
    ("b", Literal["a"] | None, "x='b'.*'a'"),
    (1, tuple[int, ...], "x=1 is of type int, expected tuple"),
    ("x", int | float | None, "x='x' is of type str, expected int or float or None"),
]


@pytest.mark.parametrize(("value", "hint", "words"), MESSAGES)
def test_wrong_types_are_told_with_the_right_ones(value: Any, hint: Any, words: str) -> None:
    check_refused(words, check_type, value, hint, "x")


def test_a_module_of_ours_that_has_moved_is_named_where_it_is_now() -> None:
    with pytest.raises(UserError, match=r"; it is now attnlab\.attention\.scores\.perceptrons$"):
        SCORES.resolve("attnlab.attention.scores.additive:Additive")
