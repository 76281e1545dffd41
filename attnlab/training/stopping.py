"""When a run ends before its last step (`training.stop`): a measure of validation has not improved
for some evaluations. It is a function of the validation records alone, so a resumed run ends where an
uninterrupted one does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from attnlab.records.measures import Measure
from attnlab.training.settings import Stop


@dataclasses.dataclass
class Patience:
    """The evaluations of a run so far, for its end.

    Attributes:
      settings: of the config.
      better: which way the measure is better, "min" or "max".
      after: a step up to which nothing ends: that of the parent of a run that goes on, which begins
        to wait anew if the parent has ended so.
      best: the best value so far, and the step of it; infinitely bad before the first.
      waited: evaluations since then.
      message: why training has ended; "" while it has not.
    """

    settings: Stop
    better: str
    after: int = 0
    best: tuple[float, int] = (math.inf, 0)
    waited: int = 0
    message: str = ""

    @classmethod
    def of(cls, settings: Stop, measures: Mapping[str, Measure], after: int = 0) -> Patience:
        """That of a run before its first evaluation."""
        better = measures[settings.measure].better if settings.measure else "min"
        return cls(settings, better, after)

    def scored(self, step: int, scores: Mapping[str, float]) -> None:
        """Take the scores of an evaluation; a number that is none is no improvement."""
        name = self.settings.measure
        if not name or self.message:
            return
        value = scores[name] if self.better == "min" else -scores[name]
        if value < self.best[0] - self.settings.min_delta:
            self.best, self.waited = (value, step), 0
            return
        self.waited += 1
        if self.waited < self.settings.patience:
            return
        self.waited = 0
        if step > self.after:
            best = self.best[0] if self.better == "min" else -self.best[0]
            self.message = (
                f"stopped early at step {step}: {name} has not improved on {best:.6g} of step"
                f" {self.best[1]} in {self.settings.patience} evaluations"
            )
