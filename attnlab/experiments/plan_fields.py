"""The kinds of what stands in `plan.json` below the fields of `Plan`, for `attnlab.json_kinds`: a plan may have been edited by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from attnlab.json_kinds import Finite, Natural


class Versioned(TypedDict):
    """What is read before anything else."""

    version: Any


class _Metric(TypedDict):
    metric: str
    mode: Literal["min", "max"]


class _Budget(TypedDict):
    match: Literal["parameters", "flops"]
    within: Finite
    knob: str
    to: str
    knobs: Mapping[str, str]


class _Met(TypedDict):
    """The budget of a candidate."""

    wanted: Finite
    reached: Finite
    knob: str
    value: int
    matched: bool
    note: str


class _Contrast(TypedDict):
    weights: Mapping[str, Finite]
    at_least: Finite


class _Claim(TypedDict):
    statement: str
    contrasts: list[_Contrast]


class _Range(TypedDict):
    kind: str


class _Search(TypedDict):
    sampler: str
    trials: Natural
    pruner: str | None
    at_once: Natural
    seed: Natural
    space: Mapping[str, _Range]


class _Training(TypedDict):
    steps: Natural


class _Config(TypedDict):
    training: _Training


class _Planned(TypedDict):
    """What is read of a candidate below its own fields."""

    config: _Config
    budget: _Met | None


class _Point(TypedDict):
    name: str
    overrides: Mapping[str, Any]


class Inner(TypedDict):
    """What is read of `plan.json` below the fields of `Plan`."""

    tune: list[_Point]
    select: _Metric
    measure: _Metric
    budget: _Budget | None
    claim: _Claim | None
    search: _Search | None
    candidates: list[_Planned]
