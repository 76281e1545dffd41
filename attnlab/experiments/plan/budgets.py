"""Equal budgets: the value of a whole-number setting at which a model has as many parameters, or
FLOPs, as another.

The count grows with the setting, so this is root finding among integers. In nearly every setting the
number of parameters is a line or a parabola. Two counts fix a line and three a parabola; where one
more count lies on it too, the nearest value is calculated from it, and counted. That takes three or
four counts in all. Otherwise the search goes on by secants inside a bracket.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from attnlab import config as configs
from attnlab.config.patterns import covers
from attnlab.errors import UserError, nearest
from attnlab.experiments.plan.building import Builder
from attnlab.experiments.plan.candidate import Met, Wanted
from attnlab.experiments.plan.plan import Plan
from attnlab.tasks.schemas import Settings

Count = Callable[[int], float]

_MOST = 40  # counts; a search by secants takes about five
_FAR = 8  # times the largest value counted so far: no guess is larger


@dataclasses.dataclass(frozen=True)
class Solution:
    """The nearest value found.

    Attributes:
      value: of the setting.
      reached: the count there.
      note: why no nearer value exists, if there is a special reason; "" otherwise.
    """

    value: int
    reached: float
    note: str = ""


def solve(count: Count, start: int, wanted: float) -> Solution:
    """Finds the whole number at which `count`, a function that grows, is nearest to `wanted`,
    searching from the accepted number `start`; returns a `Solution`: the number, its count, and a
    note, "" unless a refused value ended the search or the count never changes.

    Args:
      count: the count at a value; grows with it; raises `UserError` for a value that the config
        does not accept.
      start: an accepted value.
      wanted: the count to match.
    """
    seen = {start: count(start)}
    if seen[start] == wanted:
        return Solution(start, wanted)
    step = _granule(count, start, seen)
    if step is None:
        return Solution(start, seen[start], f"no other value than {start} was accepted nearby")
    note = ""
    while len(seen) < _MOST and (guess := _next(seen, step, wanted)) is not None:
        try:
            seen[guess] = count(guess)
        except UserError as error:
            note = str(error)
            break
    value = min(seen, key=lambda tried: (abs(seen[tried] - wanted), tried))
    if len(set(seen.values())) == 1:
        note = "it makes no difference"
    return Solution(value, seen[value], note)


def _granule(count: Count, start: int, seen: dict[int, float]) -> int | None:
    """Returns the smallest divisor of `start` for which `count` accepts `start` plus the divisor,
    whose count it stores in `seen` (value to count), or None if there is none; `count` raises
    `UserError` for a value not accepted.
    """
    for step in (divisor for divisor in range(1, start + 1) if start % divisor == 0):
        try:
            seen[start + step] = count(start + step)
        except UserError:
            continue
        return step
    return None


def _next(seen: dict[int, float], step: int, wanted: float) -> int | None:
    """Returns the next value to count, a multiple of `step`, from the counts so far, `seen` (value
    to count), or None once the value whose count is nearest to `wanted` is clear, or if counts do
    not grow. It is clear from its counted neighbours, or a line or parabola through all counts.
    """
    below = max((value for value, reached in seen.items() if reached <= wanted), default=0)
    above = min((value for value, reached in seen.items() if reached >= wanted), default=None)
    if above is not None and above - below <= step:
        return None
    first, second = (
        sorted(seen)[-2:] if above is None else sorted(seen)[:2] if below == 0 else (below, above)
    )
    slope = (seen[second] - seen[first]) / (second - first)
    if slope <= 0:
        return None
    points = sorted(seen.items())
    values = range(step, _FAR * points[-1][0] + step, step)
    for degree in (1, 2):
        guess = _nearest(points[: degree + 1], values, wanted)
        if len(points) == degree + 1 and guess not in seen:
            return guess
        if len(points) > degree + 1 and _on_one(points, degree):
            return None if guess in seen else guess
    secant = first + (wanted - seen[first]) / slope
    if above is None:  # outside the bracket, where a secant may lead far away
        return max(below + step, math.ceil(min(secant, _FAR * below) / step) * step)
    nearest = min(max(round(secant / step) * step, below + step), above - step)
    return nearest if len(seen) % 3 else (below + above) // (2 * step) * step


Points = Sequence[tuple[int, float]]


def _at(points: Points, value: int) -> Fraction:
    """Returns the polynomial through the points (value, count) evaluated at `value`, as an exact
    `Fraction`.
    """
    total = Fraction(0)
    for node, reached in points:
        shares = (Fraction(value - x, node - x) for x, _ in points if x != node)
        total += math.prod(shares, start=Fraction(reached))
    return total


def _on_one(points: Points, degree: int) -> bool:
    """Returns whether one polynomial of a degree goes exactly through all points."""
    return all(_at(points[: degree + 1], value) == reached for value, reached in points)


def _nearest(points: Points, values: range, wanted: float) -> int:
    """Returns the one of `values` at which the polynomial through the points, which grows, is
    nearest to `wanted`.
    """
    goal = Fraction(wanted)
    place = bisect.bisect_left(values, goal, key=lambda value: _at(points, value))
    around = values[max(place - 1, 0) : place + 1]
    return min(around, key=lambda value: (abs(_at(points, value) - goal), value))


def matched(plan: Plan, wanted: Wanted, builder: Builder) -> Met:
    """Finds the value of the budget's knob (a setting) at which a wanted candidate's count is
    nearest to that of the variant to match; returns a dict of knob, value, both counts, `matched`
    and a note; raises `UserError` if tuning sets the knob, or a variant sets the common one (the
    variant to match may).
    """
    assert plan.budget is not None
    knob = plan.budget["knobs"].get(wanted.variant, plan.budget["knob"])
    to, what = plan.budget["to"], plan.budget["match"]
    # A variant may set the start value of its own knob.
    own_knob = wanted.variant in plan.budget["knobs"]
    free = wanted.variant == to or own_knob
    compared = {} if free else plan.variants[wanted.variant]
    if any(covers(key, knob) for key in (*wanted.tuned, *compared)):
        raise UserError(
            f"{knob!r} is set, but the budget solves for it; leave it to the budget or take another"
            " knob"
        )
    goal = builder.count(builder.config(plan.want(to, wanted.tuned).overrides), what)
    start = _whole(builder.config(wanted.overrides), knob)
    if wanted.variant == to:
        matched = True
        solution = Solution(start, goal, "the others are matched to it")
    else:
        settings = wanted.overrides
        solution = solve(
            lambda value: builder.count(builder.resolved({**settings, knob: value}), what),
            start,
            goal,
        )
        matched = abs(solution.reached / goal - 1) <= plan.budget["within"]
        solution = dataclasses.replace(solution, note="" if matched else solution.note)
    return {
        "wanted": goal,
        "reached": solution.reached,
        "knob": knob,
        "value": solution.value,
        "matched": matched,
        "note": solution.note,
    }


def _whole(config: Settings, knob: str) -> int:
    """Returns the value of the setting `knob` in a config; raises `UserError` unless it exists and
    is a whole number of at least 1.
    """
    settings = configs.flat(config)
    if knob not in settings:
        raise UserError(f"budget.knob {knob!r}: no such setting; {nearest(knob, settings)}")
    value = settings[knob]
    if type(value) is not int or value < 1:
        raise UserError(
            f"budget.knob {knob!r} is {value!r}; a whole number of at least 1 is needed"
        )
    return value
