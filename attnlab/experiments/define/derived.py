"""Derived measures: not scores, but computed from the records of a trial, such as its cost and when
it reached a score. For each, less is better. Here are their names, for experiment files and
planning; `attnlab.experiments.report` computes their values.

  step_seconds, seconds, peak_bytes, parameters, flops              of a step, of all its processes, of the host, of the model, of a step
  steps_to(loss<=1.5), seconds_to(...), flops_to(accuracy>=0.9)     until a score of the validation split first got there
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from attnlab.errors import UserError, nearest

PLAIN = ("step_seconds", "seconds", "peak_bytes", "parameters", "flops")
REACHING = ("steps_to", "seconds_to", "flops_to")
COUNTED = ("parameters", "flops")
"""Those that are counts of the model, not measured: every seed has the same."""
_TIMED = ("step_seconds", "seconds", "seconds_to")
_FORM = re.compile(rf"({'|'.join(REACHING)})\(\s*(\w+)\s*(<=|>=)\s*([-+0-9.eE]+)\s*\)")
_SIGN = {"min": "<=", "max": ">="}


@dataclasses.dataclass(frozen=True)
class Reached:
    """ "seconds_to(loss<=1.5)" in parts.

    Attributes:
      what: a name of `REACHING`.
      metric: of the validation split.
      sign: "<=" or ">=".
      bound: the score.
    """

    what: str
    metric: str
    sign: str
    bound: float

    def holds(self, score: float) -> bool:
        """Returns whether a score has reached the bound."""
        return score <= self.bound if self.sign == "<=" else score >= self.bound


def reached(name: str) -> Reached | None:
    """Parses the name of a measure such as "steps_to(loss<=1.5)" into a `Reached` (what, metric,
    sign, bound); returns None for any other name.
    """
    match = _FORM.fullmatch(name)
    try:
        return None if match is None else Reached(match[1], match[2], match[3], float(match[4]))
    except ValueError:
        return None


def is_derived(name: str) -> bool:
    """Returns whether `name` is a derived measure."""
    return name in PLAIN or reached(name) is not None


def is_timed(name: str) -> bool:
    """Returns whether a measure is a time, which depends on the other load of the machine."""
    return name.partition("(")[0] in _TIMED


def forms(metric: str = "loss", way: str = "min") -> tuple[str, ...]:
    """Returns the names of all derived measures, with the score `metric` in those that wait for
    one; for messages.
    """
    return (*PLAIN, *(f"{what}({metric}{_SIGN[way]}1.5)" for what in REACHING))


def check_derived(
    where: str, name: str, measures: Mapping[str, str], evaluated: Iterable[str]
) -> None:
    """Raises `UserError`, which begins with `where`, if runs cannot give the derived measure
    `name`: its score is not among those `evaluated` during training, or it waits for the score to
    get worse (`measures`: score to "min" or "max").

    Args:
      where: who uses it, for the message.
      name: one for which `is_derived` holds.
      measures: the task's scores, and which way is better.
      evaluated: the scores that are computed during training.

    Raises:
      UserError: it needs a score that is not computed during training, or waits for one to get
        worse.
    """
    parts = reached(name)
    if parts is None:
        return
    scores = sorted({*evaluated} & {*measures}) or sorted(evaluated)
    if parts.metric not in scores:
        near = nearest(parts.metric, scores)
        raise UserError(
            f"{where}: {name!r} needs a score that is known while a run trains, not {parts.metric!r};"
            f" {near}"
        )
    sign = _SIGN.get(measures.get(parts.metric, ""), parts.sign)
    if parts.sign != sign:
        right = f"{parts.what}({parts.metric}{sign}{parts.bound:g})"
        raise UserError(f"{where}: {name!r} waits for {parts.metric} to get worse; write {right!r}")
