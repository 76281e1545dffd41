"""Draws the cases of a default test run: a seeded sample that covers every product of cases.

A *product* is all cases of one parametrised test, or of all tests of a file that are marked
`@pytest.mark.product("name")`; the test itself is then one of its parts. The *parts* of a case are
its arguments, and the entries of those that are mappings (configs), where all numbers but 0 and 1
are one value: a size. The sample has every value of every part at least once, and, up to the number
of cases asked for, as many pairs of values of two parts as it can.

    ATTNLAB_CASES=all   every case of every test: the full mode
    ATTNLAB_CASES=20    20 cases of each product (default 1), never fewer than cover it
    ATTNLAB_SEED=7      another draw (default 0)

A test marked `@pytest.mark.full` runs in the full mode only: training to a score, installing a
package, the third kill of one kind. Nothing else decides what is left out. The sample is drawn from
what was collected and selected, each product for itself: a file alone draws what it draws in the
whole run, and a case that is named by its id always runs.
"""

import itertools
import os
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from attnlab.errors import UserError

Part = tuple[str, Hashable]  # the name of a part and one of its values


def full_mode() -> bool:
    """Whether every case of every test runs."""
    return os.environ.get("ATTNLAB_CASES", "") == "all"


def cases_per_product() -> int:
    """The number of cases asked for of each product."""
    return _whole_number("ATTNLAB_CASES", 1)


def seed() -> int:
    """The seed of the draw."""
    return _whole_number("ATTNLAB_SEED", 0)


def rounds(default: int, full: int) -> int:
    """How often a test tries something random: `full` times in the full mode."""
    return full if full_mode() else default


def describe() -> str:
    """One line on what this run draws, for its header."""
    if full_mode():
        return "cases: all (ATTNLAB_CASES=all)"
    return (
        f"cases: a covering sample, ATTNLAB_CASES={cases_per_product()} ATTNLAB_SEED={seed()};"
        " everything: ATTNLAB_CASES=all"
    )


def choose(products: Mapping[str, Sequence[frozenset[Part]]]) -> dict[str, list[int]]:
    """The numbers of the chosen cases of each product, in order.

    Args:
      products: the parts of every case of a product, by the product's name, which is mixed into
        the seed: what else runs makes no difference.
    """
    return {name: sorted(_cover(name, cases)) for name, cases in products.items()}


def sample(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Divides collected tests into those that run and those that are left out."""
    if full_mode():
        return list(items), []
    products: dict[str, list[pytest.Item]] = {}
    chosen: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("full") is None:
            products.setdefault(_product(item), []).append(item)
    parts = {name: [parts_of(item) for item in cases] for name, cases in products.items()}
    for name, numbers in choose(parts).items():
        chosen.update(products[name][number] for number in numbers)
    return [one for one in items if one in chosen], [one for one in items if one not in chosen]


def parts_of(item: pytest.Item) -> frozenset[Part]:
    """The parts of a collected case; a test without arguments has itself as its only part."""
    arguments = item.callspec.params if hasattr(item, "callspec") else {}
    parts = {("test", item.originalname if hasattr(item, "originalname") else item.name)}
    for name, value in arguments.items():
        parts.update(_parts(name, value, item))
    return frozenset(parts)


def _parts(name: str, value: Any, item: pytest.Item) -> Iterator[Part]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            sized = isinstance(entry, (int, float)) and entry not in (0, 1)
            yield from _parts(f"{name}.{key}", "a number" if sized else entry, item)
    elif isinstance(value, (str, int, float, bool, tuple, list, type(None))):
        yield name.removesuffix(".name"), repr(value)
    else:
        yield name, getattr(value, "__qualname__", item.name)


def _product(item: pytest.Item) -> str:
    """The name of the product that a case is of."""
    file, _, test = item.nodeid.partition("::")
    marker = item.get_closest_marker("product")
    return f"{file}::{marker.args[0] if marker else test.partition('[')[0]}"


def _cover(name: str, cases: Sequence[frozenset[Part]]) -> list[int]:
    """The numbers of cases that have all values, then as many pairs as the number allows."""
    order = list(range(len(cases)))
    random.Random(f"{seed()} {name}").shuffle(order)
    chosen = _greedy(order, cases, len(cases))
    wanted = min(cases_per_product(), len(cases)) - len(chosen)
    if wanted > 0:
        pairs = [frozenset(itertools.combinations(sorted(parts, key=repr), 2)) for parts in cases]
        seen = frozenset().union(*(pairs[number] for number in chosen))
        rest = [number for number in order if number not in set(chosen)]
        chosen += _greedy(rest, [of_case - seen for of_case in pairs], wanted)
        rest = [number for number in rest if number not in set(chosen)]
        chosen += rest[: max(0, min(cases_per_product(), len(cases)) - len(chosen))]
    return chosen


def _greedy(order: Sequence[int], sets: Sequence[frozenset[Any]], most: int) -> list[int]:
    """At most `most` numbers of sets, each next one with the most elements that are new."""
    missing = set().union(*(sets[number] for number in order)) if order else set()
    left, chosen = list(order), []
    while missing and len(chosen) < most:
        best = max(left, key=lambda number: len(sets[number] & missing))
        chosen.append(best)
        left.remove(best)
        missing -= sets[best]
    return chosen


def _whole_number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "") or str(default)
    if not text.isdigit():
        choice = "all or a whole number" if variable == "ATTNLAB_CASES" else "a whole number"
        raise UserError(f"{variable}={text!r} is not {choice}")
    return int(text)
