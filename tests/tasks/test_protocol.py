"""Every registered task has all that the protocol asks for, with the arguments that it names."""

import inspect
from typing import Any

import pytest

from attnlab.data import SOURCES
from attnlab.records.measures import declared
from attnlab.systems.protocol import System
from attnlab.tasks import TASKS
from attnlab.tasks.base import Task
from attnlab.tasks.protocol import Shown, TextExample

METHODS = {
    name: method
    for name, method in {**vars(Shown), **vars(Task)}.items()
    if callable(getattr(Task, name)) and not name.startswith("_")
}
READS = {method for source in SOURCES.names() for method in dir(SOURCES.resolve(source))}
every = pytest.mark.parametrize("name", TASKS.names())


@every
def test_methods_take_what_callers_give(name: str) -> None:
    """What a task adds to their arguments may be left out."""
    kind = TASKS.resolve(name)
    for method in METHODS:
        expected, given = (
            [*inspect.signature(getattr(of, method)).parameters.values()] for of in (Task, kind)
        )
        if given[-1].kind is inspect.Parameter.VAR_KEYWORD is not expected[-1].kind:  # handed on
            given = given[:-1]
            expected = [one for one in expected if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        names = [argument.name for argument in given]
        assert names[: len(expected)] == [argument.name for argument in expected], method
        added = given[len(expected) :]
        assert all(one.default is not inspect.Parameter.empty for one in added), method
        assert "self" not in names or method not in ("check", "load", "saved"), method


@pytest.mark.quick
@every
def test_measures_units_and_names(name: str) -> None:
    kind: Any = TASKS.resolve(name)
    known = declared(kind)
    assert known["loss"].better == "min"
    assert all(one.low is not None and one.count is None for one in known.values())
    assert all((one.low, one.high) == (0.0, 1.0) for one in known.values() if one.of is not None)
    assert kind.evaluated[0] == "loss" and set(kind.evaluated) <= set(kind.measures)
    assert all(isinstance(unit, str) for unit in kind.units.values())
    assert isinstance(kind.examples, str)
    assert kind.examples
    assert issubclass(kind.systems, System) and kind.reads in READS
    assert isinstance(kind.outputs, str) and "/" not in kind.outputs


def test_an_example_of_texts_is_shown_and_recorded() -> None:
    pair, one = TextExample("a b", "c"), TextExample("a b")
    assert (pair.shown(), one.shown()) == ("a b  ->  c", "a b") and pair == ("a b", "c")
    assert one.record() == {"source": "a b", "target": None}
