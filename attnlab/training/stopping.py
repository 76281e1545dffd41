"""When a run ends before its last step (`training.stop`): a measure of validation has not improved
for some evaluations. It is a function of the validation records alone, so a resumed run ends where an
uninterrupted one does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnlab.training.settings import Stop


def why_ended(stop: Stop, better: str, scores: Sequence[tuple[int, float]], after: int = 0) -> str:
    """Returns why training ends with the last of some evaluations; "" while it goes on.

    Args:
      stop: of the config.
      better: which way its measure is better, "min" or "max".
      scores: step and value of each evaluation; NaN is no improvement.
      after: the step of a parent, up to which nothing ends; if training would have ended by then,
        patience begins anew behind it, else the parent's evaluations count as in one long run.
    """
    best, best_step, sign = math.inf, 0, 1 if better == "min" else -1
    waited, expired = 0, False
    for step, value in scores:
        if expired and step > after:
            waited, expired = 0, False
        if sign * value < best - stop.min_delta:
            best, best_step, waited = sign * value, step, 0
            continue
        waited += 1
        expired = expired or waited == stop.patience
        if expired and step > after:
            by = f" by more than {stop.min_delta:g}" if stop.min_delta else ""
            return (
                f"stopped early at step {step}: {stop.measure} has not improved on {sign * best:.6g}"
                f" of step {best_step}{by} in {stop.patience} evaluations"
            )
    return ""
