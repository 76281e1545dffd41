"""What an experiment file states: the question, what is compared, tuned and held equal, and the
claim to be tested. And one experiment over several tasks or data sets: the same variants and seeds
on each, as a sweep of its own.

An experiment file defines `get_experiment(argument: str = "") -> Experiment`;
`experiments/bottleneck.py:my/folder` calls it with "my/folder". Nothing here imports jax;
`attnlab.experiments.plan.process` checks whether the settings fit the systems.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal

from attnlab.errors import UserError, nearest
from attnlab.experiments.define.axes import Axis, flattened, layered

Mode = Literal["min", "max"]


@dataclasses.dataclass(frozen=True)
class Budget:
    """What is made equal in every variant and the variant `to`.

    Attributes:
      match: "parameters", or "flops" of one training step.
      knob: the whole number that is solved for, by its full name ("system.decoder").
      within: the share by which it may differ; None for 0.01 of parameters and 0.02 of FLOPs.
      to: the variant to match; "" for the baseline.
      knobs: variant to its own knob, if it differs; the variant may set the start value of the
        search.
    """

    match: Literal["parameters", "flops"]
    knob: str
    within: float | None = None
    to: str = ""
    knobs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contrast:
    """One linear statement about the means of the measure: sum over variants of weight x mean >=
    at_least.

    Attributes:
      weights: variant to weight; they add up to 0.
      at_least: in the unit of the measure.
      directed: whether the weights are written for a measure where more is better, as by `better`;
        `literal` changes their sign if less is better.
      on: the derived measure that it is about, see `attnlab.experiments.define.derived`; "" for the
        measure of the experiment.
    """

    weights: Mapping[str, float]
    at_least: float = 0.0
    directed: bool = False
    on: str = ""

    def literal(self, mode: Mode) -> "Contrast":
        """Returns the same contrast with weights for the measure itself, where `mode` is better;
        for a derived measure less is better.
        """
        if not self.directed or (mode == "max" and not self.on):
            return dataclasses.replace(self, directed=False)
        weights = {variant: -self.weights[variant] for variant in reversed(list(self.weights))}
        return dataclasses.replace(self, weights=weights, directed=False)


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is claimed before anything is measured.

    Attributes:
      statement: one sentence.
      contrasts: all of them must hold.
    """

    statement: str
    contrasts: tuple[Contrast, ...]


def better(one: str, other: str, by: float = 0.0, on: str = "") -> Contrast:
    """Returns the `Contrast` that states that `one` is better than `other` by at least `by`, in the
    unit of the measure and in its direction, whichever that is.

    With `by` below 0: `one` is worse by at most `-by`. With `on`, such as "step_seconds" or
      "seconds_to(loss<=1.5)": `one` needs less of it than `other`.
    """
    return Contrast({one: 1.0, other: -1.0}, by, directed=True, on=on)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What an experiment trains, and why.

    Attributes:
      question: one sentence, printed above the answer.
      config: config file and argument, `configs/translation.py:rnnsearch`.
      compare: the variants, one row of the report each.
      base: overrides for every variant.
      tune: settings that are tried for every variant; validation chooses one. () for none.
      seeds: every candidate is trained with each.
    """

    question: str
    config: str
    compare: Axis
    base: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tune: Axis = ()
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


@dataclasses.dataclass(frozen=True)
class Experiment(Trained):
    """A question and how it is answered: the fields of `Trained`, and how the results are judged.

    Attributes:
      baseline: the variant that the others are compared with; "" for the first.
      select: metric and mode by which candidates are chosen, on the validation split.
      measure: metric and mode that is reported, on the test split; or a measure that is no score,
        such as ("step_seconds", "min"), ("steps_to(loss<=1.5)", "min"): see
        `attnlab.experiments.define.derived`.
      budget: what is held equal, or None.
      claim: the claim to be tested, or None.
      search: a search for the tuned settings in place of `tune`, see
        `attnlab.experiments.define.search`, or None.
      looks: how many times the test split may be read, if seeds are added in between until the
        claim is decided. Each look has its own level, so that the error rate of all looks together
        is that of one. 1: all seeds are trained before the only look.
      tasks: name of a task or data set to the fields that differ there, as {"long": {"base":
        {"data.length": 64}, "measure": ("exact", "max")}}; {} for the one of `config`. See
        `on_task`.
    """

    baseline: str = ""
    select: tuple[str, Mode] = ("loss", "min")
    measure: tuple[str, Mode] = ("loss", "min")
    budget: Budget | None = None
    claim: Claim | None = None
    search: Any = None
    looks: int = 1
    tasks: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


OF_A_TASK = ("config", "base", "tune", "select", "measure", "budget", "claim", "search")
"""The fields of an experiment that a task may replace; its `base` is laid over that of all tasks."""


def on_task(experiment: Experiment, name: str) -> Experiment:
    """Returns a copy of the experiment on its task `name` alone, whose fields replace the
    experiment's, with `base` laid over its base and the name added to its question; returns it
    unchanged for ""; raises `UserError` for an unknown or invalid task.

    Raises:
      UserError: it has one task or no such task, or the task sets what no task may, or nothing.
    """
    if not name:
        return experiment
    if len(experiment.tasks) < 2 or name not in experiment.tasks:
        raise UserError(f"two tasks or more are needed; {nearest(name, experiment.tasks)}")
    if not re.fullmatch(r"\w[\w.+ -]*", name):
        raise UserError("cannot name a folder; letters, digits and '_-.+' can")
    fields: Any = experiment.tasks[name]
    if not isinstance(fields, Mapping) or list(experiment.tasks.values()).count(fields) > 1:
        raise UserError(f"is {fields!r}; fields that no other task has are needed, {{'base': ...}}")
    if unknown := [field for field in fields if field not in OF_A_TASK]:
        raise UserError(f"sets {unknown[0]!r}; {nearest(str(unknown[0]), OF_A_TASK)}")
    bases = (flattened(base, "base") for base in (experiment.base, fields.get("base", {})))
    changed = {**fields, "base": layered(*bases), "tasks": {}}
    return dataclasses.replace(experiment, **changed, question=f"{experiment.question} ({name})")
