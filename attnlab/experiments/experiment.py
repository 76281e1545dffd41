"""What an experiment file states: the question, what is compared, tuned and held equal, and the claim that is put to the test.

An experiment file defines `get_experiment(argument: str = "") -> Experiment`; `experiments/bottleneck.py:my/folder` calls it with
"my/folder". Nothing here imports jax: whether the settings fit the systems is for `attnlab.experiments.planning` to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from attnlab.experiments.axes import Axis

Mode = Literal["min", "max"]


@dataclasses.dataclass(frozen=True)
class Budget:
    """What every variant has as much of as the one it is matched `to`.

    Attributes:
      match: "parameters", or "flops" of one training step.
      knob: the whole number that is solved for, by its full name ("system.decoder").
      within: the share by which it may differ; None for 0.01 of parameters and 0.02 of FLOPs.
      to: the variant to match; "" for the baseline.
      knobs: variant to its own knob, for those that have another one; the variant may set where the search begins.
    """

    match: Literal["parameters", "flops"]
    knob: str
    within: float | None = None
    to: str = ""
    knobs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contrast:
    """One linear statement about the means of the measure: sum over variants of weight x mean >= at_least.

    Attributes:
      weights: variant to weight; they add up to 0.
      at_least: in the unit of the measure.
    """

    weights: Mapping[str, float]
    at_least: float = 0.0


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is claimed before anything is measured.

    Attributes:
      statement: one sentence.
      contrasts: all of them must hold.
    """

    statement: str
    contrasts: tuple[Contrast, ...]


def better(one: str, other: str, by: float = 0.0) -> Contrast:
    """The measure of `one` exceeds that of `other` by at least `by`; where less is better, name the variants the other way round."""
    return Contrast({one: 1.0, other: -1.0}, by)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A question and how it is answered.

    Attributes:
      question: one sentence, printed above the answer.
      config: config file and argument, `configs/translation.py:rnnsearch`.
      compare: the variants, one row of the report each.
      base: overrides for every variant.
      tune: settings tried for every variant alike, of which validation chooses one; () for none.
      seeds: every candidate is trained with each.
      baseline: the variant that the others are compared with; "" for the first.
      select: metric and mode by which candidates are chosen, on the validation split.
      measure: metric and mode that is reported, on the test split.
      budget: what is held equal, or None.
      claim: what is put to the test, or None.
      search: a search for the tuned settings in place of `tune`, see `attnlab.experiments.search`, or None.
    """

    question: str
    config: str
    compare: Axis
    base: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tune: Axis = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    baseline: str = ""
    select: tuple[str, Mode] = ("loss", "min")
    measure: tuple[str, Mode] = ("loss", "min")
    budget: Budget | None = None
    claim: Claim | None = None
    search: Any = None
