"""Whether an experiment's claim holds: each of its contrasts judged by the seeds, and the claim by
all of them.

A contrast is c = sum over variants of w_v m_v >= a, with m the measure on the test split. The model
of all variants (see `attnlab.experiments.report.statistics`) gives c two one-sided bounds; where
several looks were planned, with the level of the present one (`planned.level`) in place of 0.05:

  supported      its lower 95 % bound lies above a
  not supported  its upper bound lies below a, at 1 - 0.05 / k for a claim of k contrasts
  undecided      anything else: no spread to judge by, a bound on either side of a, or a seed without a number

A claim is supported if all its contrasts are; this needs no correction for k (an intersection-union
test, Berger 1982). It is not supported if any contrast is not; this needs the correction 0.05 / k.

A contrast may use a derived measure. Counts of the model (parameters, FLOPs) are known and need no
bounds.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

from attnlab.experiments.define import COUNTED, grouped
from attnlab.experiments.report.comparison import Comparison, Row, measured
from attnlab.experiments.report.equality import other_scale
from attnlab.experiments.report.statistics import family as rules
from attnlab.experiments.report.statistics.family import REFUTED, SUPPORTED, TIE, UNDECIDED
from attnlab.experiments.report.statistics.planned import CHANCE, Dunnett

_WHY = {
    rules.ONE_SEED: "one seed has no spread to judge by",
    rules.AGREE: "all seeds of all variants agree, which leaves no spread to judge by",
    TIE: "the difference is {at_least:g} but for rounding",
    rules.INCLUDES: "the bounds lie on either side of {at_least:g}",
}


@dataclasses.dataclass(frozen=True)
class Power:
    """The power of the seeds, at probability `CHANCE`.

    Attributes:
      detectable: the smallest distance of a contrast from its bound that they find.
      needed: how many seeds find the observed distance; None if the number is too large.
    """

    detectable: float
    needed: int | None


@dataclasses.dataclass(frozen=True)
class Judged:
    """A contrast and what the numbers say about it.

    Attributes:
      text: "additive - location >= 0.05"; with " (step_seconds)" where it is on another measure.
      at_least: the bound a.
      seeds: how many the variant with the fewest has.
      found: what the statistics say; None if a variant has no number.
      outcome: `SUPPORTED`, `REFUTED` or `UNDECIDED`.
      why: what kept it from being decided; "" otherwise.
      power: of an undecided one with a spread; None otherwise.
    """

    text: str
    at_least: float
    seeds: int
    found: rules.Decision | None
    outcome: str
    why: str = ""
    power: Power | None = None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim and its outcome.

    Attributes:
      statement: the claim.
      outcome: that of all its contrasts: `SUPPORTED` if all are, `REFUTED` if any is.
      contrasts: one by one.
      seeds: how many the least of them rests on.
      alpha: the level of the tests.
    """

    statement: str
    outcome: str
    contrasts: tuple[Judged, ...]
    seeds: int
    alpha: float

    @property
    def sentence(self) -> str:
        """Returns the outcome in words with the number of seeds and, if undecided, the reasons and
        how many seeds would be needed: "undecided at 3 seeds: ...".
        """
        if self.outcome != UNDECIDED:
            return f"{self.outcome} ({_seeds(self.seeds)})"
        reasons = [judged.why for judged in self.contrasts if judged.outcome == UNDECIDED]
        hints = [hint(judged) for judged in self.contrasts if judged.power is not None]
        at = f" at {_seeds(self.seeds)}" if self.seeds else ""
        text = f"{UNDECIDED}{at}: {'; '.join(dict.fromkeys(reasons))}"
        return f"{text} ({'; '.join(dict.fromkeys(hints))})" if hints else text


def judge(comparison: Comparison, claim: Mapping[str, Any] | None) -> Verdict | None:
    """Judges a claim (of `plan.json`) by each of its contrasts and returns the `Verdict`
    (statement, outcome, judged contrasts, least number of seeds, alpha), or None without a claim.
    """
    if claim is None:
        return None
    contrasts = claim["contrasts"]
    judged = tuple(_contrast(comparison, contrast, len(contrasts)) for contrast in contrasts)
    outcome = rules.conjunction([part.outcome for part in judged])
    seeds = min(part.seeds for part in judged)
    return Verdict(claim["statement"], outcome, judged, seeds, comparison.alpha)


def _contrast(comparison: Comparison, contrast: Mapping[str, Any], contrasts: int) -> Judged:
    """Judges a contrast of a claim by its bounds (a count such as FLOPs by its value) and returns a
    `Judged`, undecided unless every seed has a number and the scores may be compared; `contrasts`
    is how many the claim has.
    """
    weights: Mapping[str, float] = contrast["weights"]
    at_least, on = contrast["at_least"], contrast.get("on", "")
    comparison = measured(comparison, on) if on else comparison
    rows = {variant: comparison.row(variant) for variant in weights}
    tested = comparison.basis.split == "test"
    mode = comparison.basis.mode if tested else "max"
    text = describe(weights, at_least, mode) + (f" ({on})" if on else "")
    numbers = [len(row.values) if row is not None and tested else 0 for row in rows.values()]
    if not all(numbers):
        lost = _lost(rows) and f" ({_lost(rows)})"
        why = f"a variant has no number{lost}" if tested else "the test split is not scored yet"
        return Judged(text, at_least, 0, None, UNDECIDED, why)
    if why := _not_comparable(comparison, weights, rows):
        return Judged(text, at_least, min(numbers), None, UNDECIDED, why)
    near = all(row is not None and row.name in comparison.family.values for row in rows.values())
    family = comparison.family if near else comparison.whole
    by_row = {str(row and row.name): weights[variant] for variant, row in rows.items()}
    decision = family.contrast(by_row, at_least, contrasts)
    if lost := _lost(rows):
        why = f"not every seed has a number ({lost})"
        return Judged(text, at_least, min(numbers), decision, UNDECIDED, why)
    if comparison.basis.metric in COUNTED:
        reached = decision.mean >= at_least or decision.why == TIE
        return Judged(text, at_least, min(numbers), decision, SUPPORTED if reached else REFUTED)
    why = _WHY[decision.why].format(at_least=at_least) if decision.why else ""
    power = (
        _power(family, weights, at_least, min(numbers)) if decision.outcome == UNDECIDED else None
    )
    return Judged(text, at_least, min(numbers), decision, decision.outcome, why, power)


def _not_comparable(
    comparison: Comparison, weights: Mapping[str, float], rows: Mapping[str, Row | None]
) -> str:
    """Returns why the scores of these variants may not be compared (another scale, other test
    examples); "" if they may. Where the measure depends on what differs, comparing that is no
    excuse.
    """
    trials = {variant: row.records for variant, row in rows.items() if row is not None}
    for first, second in itertools.combinations(trials, 2):
        if why := other_scale(trials[first], trials[second], comparison.basis.metric):
            return f"{first} and {second} are not comparable: {why}"
    if comparison.apart.refuses(weights) and not comparison.basis.derived:
        return f"{' and '.join(weights)} were not scored on the same test examples"
    return ""


def _lost(rows: Mapping[str, Row | None]) -> str:
    """Which seeds of these variants have no number, and why; "" for none."""
    present = {variant: row for variant, row in rows.items() if row is not None and row.missing}
    return "; ".join(f"{name}: {', '.join(row.missing)}" for name, row in present.items())


def _power(
    family: rules.Family, weights: Mapping[str, float], at_least: float, seeds: int
) -> Power | None:
    """Returns a `Power`: the smallest distance of a contrast from its bound that `seeds` seeds
    find, and how many seeds the observed distance needs (None if too many, or if it is only
    rounding), or None without a spread or with fewer than two seeds.
    """
    estimate = family.model.estimate(weights)
    if estimate.error is None or seeds < 2:
        return None
    # That of one run, as if the contrast were a difference of two variants; it is one-sided, which
    # is two-sided at twice the level.
    run = estimate.error * math.sqrt(seeds / 2)
    test = Dunnett(run, estimate.freedom / (seeds - 1), 1, 2 * family.alpha)
    least, away = test.detectable(seeds), abs(estimate.value - at_least)
    needed = test.seeds_needed(away) if away > family.model.rounding else None
    return None if least is None else Power(least, needed)


def hint(judged: Judged) -> str:
    """Returns in words, for an undecided contrast, the difference that its seeds can find and, if
    more are needed, how many the observed difference needs.
    """
    assert judged.power is not None
    text = f"{_seeds(judged.seeds)} find {judged.power.detectable:.2g} with probability {CHANCE:g}"
    needed = judged.power.needed
    if needed is None or needed <= judged.seeds:
        return text
    return f"{text}; what was seen would need about {needed:,}"


def describe(weights: Mapping[str, float], at_least: float, mode: str = "max") -> str:
    """Returns a contrast in words, such as "additive - location >= 0.05" or "mean(dot, general) -
    location >= 0" (other weights are written out); with `mode` "min", a difference of two first
    says which of them is to be better.
    """
    if mode == "min" and len(weights) == 2 and set(weights.values()) == {1.0, -1.0}:
        good, bad = sorted(weights, key=lambda variant: weights[variant])
        order = f"better than {bad}" if at_least >= 0 else f"no worse than {bad}"
        by = f" by {abs(at_least):g}" if at_least else ""
        return f"{good} {order}{by}: {describe(weights, at_least)}"
    alike = grouped((weight, variant) for variant, weight in weights.items())
    text = ""
    for weight, variants in sorted(alike.items(), key=lambda pair: pair[0] < 0):
        sign = " - " if weight < 0 else " + "
        averaged = len(variants) > 1 and math.isclose(abs(weight) * len(variants), 1)
        size = "" if abs(weight) == 1 else f"{abs(weight):g} x "
        summed = sign.join(size + name for name in variants)
        text += sign + (f"mean({', '.join(variants)})" if averaged else summed)
    return f"{text.removeprefix(' + ').lstrip()} >= {at_least:g}"


def _seeds(number: int) -> str:
    return f"{number} seed{'' if number == 1 else 's'}"
