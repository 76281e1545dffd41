"""The parts of a plan as plain values: what `plan.json` holds inside the fields of `Plan`, checked
when it is read.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from attnlab.records.json_kinds import Finite, Natural


class Metric(TypedDict):
    """A score and which way is better."""

    metric: str
    mode: Literal["min", "max"]


class Point(TypedDict):
    """A setting that is tried: its name, and full dotted names to values."""

    name: str
    overrides: Mapping[str, Any]


class BudgetTerms(TypedDict):
    """What is held equal, see `attnlab.experiments.Budget`."""

    match: Literal["parameters", "flops"]
    within: Finite
    knob: str
    to: str
    knobs: Mapping[str, str]


class Met(TypedDict):
    """How near a candidate came to the budget: the count wanted and reached, with the knob at
    `value`; why not nearer, "" for nothing; of one that misses it, whether the user has accepted that.
    """

    wanted: Finite
    reached: Finite
    knob: str
    value: int
    matched: bool
    note: str
    accepted: NotRequired[bool]


class ContrastTerms(TypedDict):
    """A contrast, see `attnlab.experiments.Contrast`."""

    weights: Mapping[str, Finite]
    at_least: Finite
    on: NotRequired[str]


class ClaimTerms(TypedDict):
    """A claim, see `attnlab.experiments.Claim`."""

    statement: str
    contrasts: list[ContrastTerms]


class RangeTerms(TypedDict):
    """A range, see `attnlab.experiments.Search`."""

    kind: str
    low: NotRequired[Finite | None]
    high: NotRequired[Finite | None]
    options: NotRequired[list[Any]]


class SearchTerms(TypedDict):
    """A search, see `attnlab.experiments.Search`."""

    sampler: str
    trials: Natural
    pruner: str | None
    at_once: Natural
    seed: Natural
    finish: NotRequired[Natural]
    space: Mapping[str, RangeTerms]


class _Training(TypedDict):
    steps: Natural


class Resolved(TypedDict):
    """A whole resolved config; of it, what is read without jax."""

    training: _Training
