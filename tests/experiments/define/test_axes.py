"""Axes: which points they have, what the points are called, what is refused."""

import dataclasses
import functools
import re
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.config.resolve import read_value
from attnlab.config.schema import Node
from attnlab.data.settings import Buckets
from attnlab.experiments.define.axes import Point, cross, flattened, grid, rows, text, zipped
from attnlab.training.settings import Training
from tests.refusals import check_refused


@pytest.mark.quick
def test_grid_is_every_combination_the_last_setting_fastest() -> None:
    points = grid({"system.attention.score": ("dot", "general"), "system.attention.heads": (1, 2)})
    names = [f"score={score}, heads={heads}" for score in ("dot", "general") for heads in (1, 2)]
    assert [point.name for point in points] == names
    assert points[1].overrides == {"system.attention.score": "dot", "system.attention.heads": 2}


def test_zipped_goes_in_step() -> None:
    points = zipped({"system.encoder": (32, 64), "system.decoder": [48, 96]})
    first, second = ({"system.encoder": size, "system.decoder": size * 3 // 2} for size in (32, 64))
    assert [point.overrides for point in points] == [first, second]
    assert points[0].name == "encoder=32, decoder=48"


def test_rows_keep_their_labels() -> None:
    expected = (Point("plain", {}), Point("wide", {"system.width": 64}))
    assert rows({"plain": {}, "wide": {"system.width": 64}}) == expected


def test_cross_joins_every_point_with_every_point() -> None:
    points = cross(rows({"a": {"x.a": 1}, "b": {"x.a": 2}}), grid({"x.b": (3, 4)}))
    assert [point.name for point in points] == ["a, b=3", "a, b=4", "b, b=3", "b, b=4"]
    expected = [{"x.a": a, "x.b": b} for a in (1, 2) for b in (3, 4)]
    assert [dict(point.overrides) for point in points] == expected


def test_names_take_as_much_of_a_key_as_tells_it_from_the_others() -> None:
    words = "encoder.dropout=0.1, decoder.dropout=0.2"
    assert grid({"encoder.dropout": (0.1,), "decoder.dropout": (0.2,)})[0].name == words
    assert grid({"system.score.name": ("dot",)})[0].name == "score=dot"
    words = "buckets=16x32, fast=true"
    assert grid({"batch.buckets": ((16, 32),), "training.fast": (True,)})[0].name == words


def test_nested_overrides_become_dotted() -> None:
    assert flattened(
        {"system": {"attention": {"name": "single", "hidden": 8}}, "seedling": [1, [2, 3]]}, ""
    ) == {"system.attention.name": "single", "system.attention.hidden": 8, "seedling": (1, (2, 3))}


PLAIN = (3, 0.1, 1e-30, True, False, None, "dot", "it's", "'quoted'", "a, b")


@pytest.mark.parametrize("value", [*PLAIN, (1, 2), (4,), ("a", "b"), (0.5,)])
def test_the_text_of_a_value_reads_back_as_that_value(value: Any) -> None:
    read = read_value(text(value), value, lambda: Any, "here")
    assert (read, type(read)) == (value, type(value))
    assert text([1, [2, 3]]) == "(1, (2, 3))"  # as JSON gives tuples back


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbers(Node):
    """A config of numbers alone."""

    training: Training
    batch: Buckets


def test_values_reach_the_config_as_if_typed() -> None:
    overrides = flattened({"training": {"clip": 2, "ema": 0.5}, "batch.buckets": [8, 32]}, "")
    plain = {"training": {"steps": 1}, "batch": {"buckets": (16,), "max_length": 32}}
    given = [f"{key}={text(value)}" for key, value in overrides.items()]
    config = configs.prepare(configs.from_dict(plain), given, Numbers)
    values = configs.flat(config)
    expected = {"training.clip": 2.0, "training.ema": 0.5, "batch.buckets": (8, 32)}
    assert expected.items() <= values.items()
    assert type(config.training.clip) is float


GRIDS: dict[str, Any] = {
    "grid: expected {key: (value, value, ...)} with at least one setting, got {}": {},
    "grid: the values of 'system.score' must be a tuple, got 'dot'": {"system.score": "dot"},
    "the values of 'system.score' must be a tuple, got 3": {"system.score": 3},
    "grid: 160,000 combinations; expect": {"a": range(400), "b": range(400)},
    "grid: 'system.score' has no values": {"system.score": ()},
    "'system.score' has a value twice: 'dot', 'dot'": {"system.score": ("dot", "dot")},
    "'schedule.peak' is nan; a finite number is needed": {"schedule.peak": (float("nan"),)},
    "'schedule.peak' is {1}, a set; use numbers, strings": {"schedule.peak": ({1},)},
    "leave out 'config.', write 'schedule.peak'": {"config.schedule.peak": (1,)},
    "'schedule.peak=1' is not the dotted name of a setting": {"schedule.peak=1": (1,)},
}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((functools.partial(grid, settings), words) for words, settings in GRIDS.items()),
        (lambda: zipped({"a": (1, 2), "b": (1,)}), "of different lengths: 'a' has 2, 'b' has 1"),
        (lambda: rows({}), "rows: expected {label: {key: value}} with at least one row"),
        (lambda: rows({"a": 3}), "rows: 'a': expected {key: value}, got 3"),  # type: ignore[dict-item]
        (lambda: rows({"a\nb": {}}), "rows: 'a\\nb' is no label; use a short text on one line"),
        (lambda: cross(grid({"a": (1,)}), grid({"a": (2,)})), "cross: 'a' is set by two axes"),
        (lambda: cross(grid({"a": (1,)}), ()), "cross: axis 2 is no axis; make it with grid"),
    ],
)
def test_refused(make: Any, words: str) -> None:
    check_refused(re.escape(words), make)
