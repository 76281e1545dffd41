"""The warm-up of a schedule where a user gives other steps than a config file has; and notes."""

import functools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from attnlab.config.patterns import covers

WARMUP, STEPS, DECAYING = "schedule.warmup", "training.steps", ("cosine", "linear")


def fitting_warmup(
    before: Mapping[str, Any], now: Mapping[str, Any], given: Iterable[str]
) -> int | None:
    """Returns the config file's `schedule.warmup` (steps), shortened in proportion and noted to the
    user, if the user's `training.steps` are fewer than this warm-up, the file's are not, the
    schedule decays and the user has not set the warm-up; else returns None.

    Args:
      before: settings by full names, as the file has them.
      now: the same with those of the user.
      given: the names of the user's, or patterns of names.
    """
    numbers: list[Any] = [now.get(WARMUP), now.get(STEPS), before.get(STEPS)]
    warmup, steps, most = numbers
    decays = now.get("schedule", now.get("schedule.name")) in DECAYING
    chosen = any(covers(name, "schedule.warmup") for name in given)
    if chosen or not decays or {*map(type, numbers)} != {int}:
        return None
    if not 0 < steps < warmup <= most:
        return None
    shorter: int = warmup * steps // most
    note(f"training.steps={steps}: the file's schedule.warmup={warmup} gives way, it is {shorter}")
    return shorter


def note_kept_warmup(
    run: str, before: Mapping[str, Any], now: Mapping[str, Any], overrides: Iterable[str]
) -> None:
    """Notes to the user that a run with more steps than the run `run`, whose config it takes, has
    the same warm-up, unless an override sets it or the schedule does not decay; `before` and `now`
    are the settings of the two by full names.
    """
    warmup, steps, most = now.get(WARMUP), now[STEPS], before[STEPS]
    chosen = any(covers(text.partition("=")[0], WARMUP) for text in overrides)
    same = warmup and warmup == before.get(WARMUP) and now["schedule.name"] in DECAYING
    if same and not chosen and steps > most:
        note(f"{STEPS}={steps}: {WARMUP}={warmup} is that of {run}, which had {most} steps")


@functools.cache
def note(text: str) -> None:
    """Prints a line to stderr, once for a process."""
    print(f"note: {text}", file=sys.stderr)
