"""When a run ends before its last step (`training.stop`): a measure of validation has not improved
for some evaluations. It is a function of the validation records alone, so a resumed run ends where an
uninterrupted one does.
"""

import math
from collections.abc import Collection, Sequence

from attnlab.training.settings import Stop


def why_ended(
    stop: Stop, better: str, scores: Sequence[tuple[int, float]], after: Collection[int] = ()
) -> str:
    """Returns the reason, as text, why training ends early, or "" while it goes on: the values in
    `scores` (step, value) have not improved by more than `stop.min_delta` for `stop.patience`
    evaluations, and the last step in `after` is passed.

    Args:
      stop: of the config.
      better: which way its measure is better, "min" or "max".
      scores: step and value of each evaluation; NaN is no improvement.
      after: the steps at which a run has gone on from another, up to the last of which nothing
        ends; if training would have ended by one of them, patience begins anew behind it, else the
        evaluations before it count as in one long run.
    """
    best, best_step, waited, sign = math.inf, 0, 0, 1 if better == "min" else -1
    expired, previous, begin = False, 0, max(after, default=0)
    for step, value in scores:
        if expired and any(previous <= parent < step for parent in after):
            waited, expired = 0, False
        previous = step
        if sign * value < best - stop.min_delta:
            best, best_step, waited = sign * value, step, 0
            continue
        waited += 1
        expired = expired or waited == stop.patience
        if expired and step > begin:
            by = f" by more than {stop.min_delta:g}" if stop.min_delta else ""
            return (
                f"stopped early at step {step}: {stop.measure} has not improved on {sign * best:.6g}"
                f" of step {best_step}{by} in {stop.patience} evaluations"
            )
    return ""
