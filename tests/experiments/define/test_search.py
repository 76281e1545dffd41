"""The words of a search: what they accept, what they refuse in one line, and that plan.json keeps
them whole.
"""

import json
import re
from typing import Any

import pytest

from attnlab.experiments.define.search import Range, Search, choice, integers, log_uniform, uniform
from tests.refusals import check_refused

SPACE = {
    "schedule.peak": log_uniform(1e-4, 1e-2),
    "batch.buckets": choice((16, 32), (32,)),
    "system.layers": integers(1, 4),
}


@pytest.mark.quick
def test_a_search_survives_json() -> None:
    space: dict[str, Any] = {**SPACE, "system.dropout": uniform(0, 0.3)}
    halving: dict[str, Any] = {"pruner": "halving", "finish": 3}
    search = Search(space, sampler="tpe", trials=20, at_once=3, seed=7, **halving)
    assert Search.from_dict(json.loads(json.dumps({**search.to_dict(), "promoted": {}}))) == search


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: uniform(0.3, 0.3), "uniform(0.3, 0.3) is empty; low must be below high"),
        (lambda: uniform(0, float("inf")), "high=inf, expected a finite number"),
        (lambda: uniform("a", 1), "low='a', expected a finite number"),  # type: ignore[arg-type]
        (lambda: log_uniform(0.0, 1.0), "no logarithm at 0.0; low must be above 0"),
        (lambda: integers(1, 2.5), "high=2.5, expected a whole number"),  # type: ignore[arg-type]
        (lambda: choice(), "choice() is empty"),
        (lambda: choice(16, object), "which no config can hold"),
        (lambda: Range("unifrom", 0, 1), "did you mean 'uniform' or 'log_uniform'?"),  # type: ignore[arg-type]
        (lambda: Search({}), "search.space is empty"),
        (lambda: Search({"schedule.peak": (1, 2)}), "expected uniform, log_uniform, integers or"),
        (lambda: Search(SPACE, sampler="tep"), "search.sampler is 'tep'; did you mean 'tpe'?"),
        (lambda: Search(SPACE, pruner="havling"), "did you mean 'halving'?"),
        (lambda: Search(SPACE, pruner="halving", finish=0), "search.finish is 0, expected a whole"),
        (lambda: Search(SPACE, trials=0), "search.trials is 0, expected a whole number of at"),
        (lambda: Search(SPACE, trials=True), "search.trials is True"),
        (lambda: Search(SPACE, at_once=1.5), "search.at_once is 1.5"),  # type: ignore[arg-type]
        (lambda: Search(SPACE, sampler="grid", trials=2), "a grid needs choice(...)"),
        (lambda: Search({"a": choice(1, 2)}, "grid", 3), "the grid has 2 points; take trials=2"),
    ],
)
def test_what_cannot_be_searched_is_refused(make: Any, said: str) -> None:
    check_refused(re.escape(said), make)


@pytest.mark.parametrize(
    ("sampler", "trials", "expected"),
    [
        ("random", 16, [16]),
        ("tpe", 16, [5, 4, 4, 3]),
        ("tpe", 3, [3]),
        ("tpe", 30, [10, 4, 4, 4, 4, 4]),
        ("tpe", 8, [4, 4]),
    ],
)
def test_rounds_wait_where_results_matter(sampler: str, trials: int, expected: list[int]) -> None:
    search = Search({"schedule.peak": log_uniform(1e-4, 1e-2)}, sampler=sampler, trials=trials)
    assert search.rounds() == expected and sum(search.rounds()) == trials
