"""What the compared settings do, each by itself and two together, where the variants are a design:

  a complete cross   every combination of the values of two settings or more, once: main effects
                     (another value in place of the baseline's, on average over all other settings)
                     and interactions of two settings (what both do together beyond the sum)
  one at a time      a baseline, three variants or more that change something different each, and
                     one that changes all of it: the share of each in the change by all. It is how
                     `sweep --without` compares; with two settings that is a complete cross.

Each effect is a weighted sum of means, judged by the model of all variants (`Family`), as contrasts
of a claim are. Settings whose values do not meet in every combination count as one.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from attnlab.config import flat
from attnlab.experiments.define import short_names, text
from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import Basis, Comparison
from attnlab.experiments.report.statistics.family import Difference, Share
from attnlab.pages.tables import NONE, Table, interval, p_value, signed

MOST = 60  # effects; of a larger cross only main effects are given, of one with more of these none
MAIN, INTERACTION, PART, ALL, BEYOND = "main", "interaction", "part", "all", "beyond the sum"
NOTES = (
    "Each is a sum of means in the model of all variants. Values are compared with the baseline's;"
    " p and intervals are adjusted for all effects here. An average hides an interaction.",
    "Differences are adjusted as in the main table; shares and what is beyond the sum stand alone."
    " No shares are given where all together may change nothing.",
)
COLUMNS = ("effect", "n", "difference", "its interval", "adjusted p", "share")
Settings = Mapping[str, Mapping[str, str]]
"""The settings that are compared: variant to name to value."""


@dataclasses.dataclass(frozen=True)
class Effect:
    """A weighted sum of the means of variants.

    Attributes:
      name: "norm=none", "norm=none with residual=false", or the variant that changes a part.
      kind: `MAIN`, `INTERACTION`, `PART`, `ALL` or `BEYOND`.
      words: the beginning of the sentence about it.
      weights: by variant; they add up to 0.
      n: seeds of the variant that has the fewest.
      difference: what the model says; None where a variant has no number that may be compared.
      share: of a `PART` in the change by all parts; None where that is not told from 0.
      lacking: which variants have no number for some seeds, and why; "" for none.
      decided: whether it is told from 0, and every seed has a number.
      sentence: all of it in words.
    """

    name: str
    kind: str
    words: str
    weights: Mapping[str, float]
    n: int = 0
    difference: Difference | None = None
    share: Share | None = None
    lacking: str = ""
    decided: bool = False
    sentence: str = ""


def effects(records: Records, comparison: Comparison) -> tuple[Effect, ...]:
    """Returns an `Effect`, with difference, share and sentence, for each effect of a sweep whose
    variants are a design (a complete cross, or changes one at a time), the largest share first; ()
    for other variants and before test scores.
    """
    if not comparison.frozen or comparison.basis.split != "test":
        return ()
    settings, baseline, family = _settings(records), records.plan.baseline, comparison.family
    design = crossed(settings, baseline) or one_at_a_time(settings, baseline)
    computable = [effect for effect in design if {*effect.weights} <= {*family.model.names}]
    summed = [effect for effect in design if effect.kind not in (PART, ALL)]
    sums = {effect.name: effect.weights for effect in summed if effect in computable}
    gaps, joint, made = family.against(baseline), family.effects(sums, len(summed)), []
    wholes = [effect for effect in computable if effect.kind == ALL]
    totals = [
        effect.weights for effect in wholes if _is_significant(gaps[effect.name], comparison.alpha)
    ]
    for effect in design:
        rows = [row for row in map(comparison.row, effect.weights) if row is not None]
        gap = (gaps if effect.kind in (PART, ALL) else joint).get(effect.name)
        part = totals and gap and effect.kind == PART
        share = family.share(effect.weights, totals[0]) if part else None
        lost = "; ".join(f"{row.name}: {', '.join(row.missing)}" for row in rows if row.missing)
        decided = _is_significant(gap, comparison.alpha) and not lost
        n = min((len(row.values) for row in rows), default=0)
        effect = dataclasses.replace(
            effect, n=n, difference=gap, share=share, lacking=lost, decided=decided
        )
        made.append(dataclasses.replace(effect, sentence=_sentence(effect, comparison.basis)))
    return tuple(sorted(made, key=lambda it: -it.share[0] if it.share else math.inf))


def _is_significant(gap: Difference | None, alpha: float) -> bool:
    return gap is not None and gap.p is not None and gap.p < alpha


def _settings(records: Records) -> dict[str, dict[str, str]]:
    """Returns, by variant and then by shortened setting name, the values as text of all settings
    that any variant of the sweep changes; the value of a component is its name.
    """
    plan, values = records.plan, {}
    keys = {key.removesuffix(".name"): None for row in plan.variants.values() for key in row}
    short = short_names(list(keys)) if keys else []
    for variant, row in plan.variants.items():
        candidate = records.representative(variant) or next(iter(plan.of(variant)), None)
        config = row if candidate is None else flat(candidate.config)
        shown = (config.get(f"{key}.name", config.get(key, row.get(key, NONE))) for key in keys)
        values[variant] = dict(zip(short, map(text, shown), strict=True))
    return values


def crossed(settings: Settings, baseline: str) -> tuple[Effect, ...]:
    """Returns, without numbers, the main effects (and pairwise interactions, unless more than
    `MOST` effects) of variants that are a complete cross of two factors or more, from `settings`
    (variant to setting name to value); () for another design or more than `MOST` main effects.
    """

    def count(*groups: Sequence[str]) -> int:
        names = [name for group in groups for name in group]
        return len({tuple(row[name] for name in names) for row in settings.values()})

    factors: list[tuple[str, ...]] = []
    for name in settings[baseline]:
        near = [names for names in factors if count(names, (name,)) < count(names) * count((name,))]
        apart = [names for names in factors if names not in near]
        factors = [*apart, (*itertools.chain(*near), name)]
    factors = [names for names in factors if count(names) > 1]
    cells = math.prod(map(count, factors))
    if len(factors) < 2 or not cells == len(settings) == count(*factors):
        return ()
    groups = [*((names,) for names in factors), *itertools.combinations(factors, 2)]
    every = (effect for group in groups for effect in _products(settings, baseline, group))
    design = list(itertools.islice(every, MOST + 1))
    design = [effect for effect in design if effect.kind == MAIN or len(design) <= MOST]
    return tuple(design) if len(design) <= MOST else ()


def _products(
    settings: Settings, baseline: str, factors: Sequence[tuple[str, ...]]
) -> Iterator[Effect]:
    """Yields the main effects of one factor, or the interactions of two (a factor is a tuple of
    setting names): an `Effect` for each value, or pair of values, that is not the baseline's, with
    its weights by variant.
    """
    columns = [
        {variant: tuple(row[name] for name in names) for variant, row in settings.items()}
        for names in factors
    ]
    levels = [list(dict.fromkeys(column.values())) for column in columns]
    share = math.prod(map(len, levels)) / len(settings)  # of one variant in the mean of a cell
    for cell in itertools.product(*levels):
        weights = dict.fromkeys(settings, share)
        for column, level in zip(columns, cell, strict=True):
            for variant, value in column.items():
                weights[variant] *= (value == level) - (value == column[baseline])
        weights = {variant: weight for variant, weight in weights.items() if weight}
        if weights:  # no value is the baseline's
            name = " with ".join(map(_written, factors, cell))
            usual = _written(factors[0], columns[0][baseline])
            kind, than = INTERACTION, "beyond the sum of both"
            if len(factors) == 1:
                kind, than = MAIN, f"in place of {usual}, on average"
            yield Effect(name, kind, f"{name} {than}", weights)


def _written(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def one_at_a_time(settings: Settings, baseline: str) -> tuple[Effect, ...]:
    """Returns, without numbers, the effects of three variants or more that each change another part
    of the baseline's settings, of the variant with all changes, and of it beyond their sum, from
    `settings` (variant to setting name to value); () for another design.
    """
    usual = {*settings[baseline].items()}
    changes = {name: {*row.items()} - usual for name, row in settings.items() if name != baseline}
    union = set().union(*changes.values())
    parts = [name for name, changed in changes.items() if changed != union]
    whole = [name for name in changes if name not in parts]
    if len(whole) != 1 or len(parts) < 3 or sum(len(changes[part]) for part in parts) != len(union):
        return ()
    made = [
        Effect(name, kind, f"{name} in place of {baseline}", {name: 1.0, baseline: -1.0})
        for name, kind in (*((part, PART) for part in parts), (whole[0], ALL))
    ]
    weights = {whole[0]: 1.0, **dict.fromkeys(parts, -1.0), baseline: len(parts) - 1.0}
    words = f"{whole[0]} beyond the sum of the {len(parts)}"
    return (*made, Effect(words, BEYOND, words, weights))


def _sentence(effect: Effect, basis: Basis) -> str:
    """Returns a sentence on an effect: its difference of the measure in `basis` with interval,
    adjusted p and share, and the conclusion (better, worse, no difference found, undecided), or why
    it has no number.
    """
    gap, joint = effect.difference, effect.kind in (INTERACTION, BEYOND)
    if gap is None:
        why = effect.lacking or "other test data"
        return f"{effect.words}: not known, for a variant has no number to compare ({why})."
    size = f"{effect.words}: {basis.metric} {signed(gap.mean)}"
    if gap.interval is not None:
        size += f" {interval(gap.interval)}, adjusted p {p_value(gap.p)}"
    if effect.share is not None:
        size += f", {_percent(effect.share)} of the change by all"
    if effect.lacking:
        return f"{size}; undecided, for not every seed has a number ({effect.lacking})."
    if not effect.decided:
        none = "no interaction found" if joint else "no difference found"
        return f"{size}; {none if gap.p is not None else f'no test, for {gap.why}'}."
    good = "better" if (gap.mean > 0) == (basis.mode == "max") else "worse"
    return f"{size}; {f'not additive, {good} than the sum' if joint else good}."


def _percent(share: Share | None) -> str:
    if share is None:
        return NONE
    return f"{100 * share[0]:.0f} % [{100 * share[1][0]:.0f}, {100 * share[1][1]:.0f}]"


def table(effects: Sequence[Effect]) -> Table | None:
    """Returns the table of effects, one row each (name, number of seeds, difference, interval, p,
    and the share where variants change one setting at a time), with their sentences as notes, or
    None if there are no effects.
    """
    if not effects:
        return None
    rows = []
    for effect in effects:
        gap = effect.difference
        cells = (signed(gap.mean), interval(gap.interval), p_value(gap.p)) if gap else (NONE,) * 3
        rows.append((effect.name, f"{effect.n}", *cells, _percent(effect.share)))
    parts = any(effect.kind == PART for effect in effects)
    weak = frozenset(place for place, effect in enumerate(effects) if effect.lacking)
    notes = (*(effect.sentence for effect in effects), NOTES[parts])
    made = Table("Effects", COLUMNS, tuple(rows), frozenset(range(1, 6)), weak=weak, notes=notes)
    return made if parts else made.only(COLUMNS[:-1])
