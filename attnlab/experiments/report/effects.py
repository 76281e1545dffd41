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

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from attnlab.config import flat
from attnlab.experiments.define import text
from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import Basis, Comparison
from attnlab.experiments.report.statistics import Difference, Share
from attnlab.pages.tables import NONE, Table, interval, p_value, signed

MOST = 60  # effects; of a larger cross only main effects are given, of one with more of these none
MAIN, INTERACTION, PART, ALL, BEYOND = "main", "interaction", "part", "all", "beyond the sum"
COLUMNS = ("effect", "n", "difference", "its interval", "adjusted p", "effect size", "share")
Settings = Mapping[str, Mapping[str, str]]
"""The settings in which variants differ: variant to name to value."""


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
      share: of a `PART` in the change by all parts; None where that change may be 0.
      lacking: which variants have no number for some seeds, and why; "" for none.
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
    sentence: str = ""


def effects(records: Records, comparison: Comparison) -> tuple[Effect, ...]:
    """Returns the effects of a sweep whose variants are a design, once the test split is scored;
    () of any other. Parts are ordered by their share.
    """
    if not comparison.frozen or comparison.basis.split != "test":
        return ()
    settings, baseline = _settings(records), records.plan.baseline
    design = crossed(settings, baseline) or one_at_a_time(settings, baseline)
    family, names = comparison.family, {*comparison.family.model.names}
    known = [effect for effect in design if {*effect.weights} <= names]
    joint = [effect for effect in known if effect.kind not in (PART, ALL)]
    judged = {
        **family.against(baseline),
        **family.effects({effect.name: effect.weights for effect in joint}),
    }
    whole = next((effect.weights for effect in known if effect.kind == ALL), None)
    made = []
    for effect in design:
        rows = [row for row in map(comparison.row, effect.weights) if row is not None]
        gap = judged.get(effect.name) if effect in known else None
        compared = gap is not None and effect.kind == PART and whole is not None
        share = family.share(effect.weights, whole) if compared and whole else None
        lost = "; ".join(f"{row.name}: {', '.join(row.missing)}" for row in rows if row.missing)
        n = min((len(row.values) for row in rows), default=0)
        effect = dataclasses.replace(effect, n=n, difference=gap, share=share, lacking=lost)
        said = f"{effect.words}: {_judged(effect, comparison.basis, comparison.alpha)}."
        made.append(dataclasses.replace(effect, sentence=said))
    by_share = {effect.name: (effect.kind != PART, -(effect.share or (0.0,))[0]) for effect in made}
    return tuple(sorted(made, key=lambda effect: by_share[effect.name]))


def _settings(records: Records) -> dict[str, dict[str, str]]:
    """Returns the compared settings of each variant as texts, by their last name where no two share
    it; a component is its name.
    """
    plan, values = records.plan, {}
    keys = {key.removesuffix(".name"): None for own in plan.variants.values() for key in own}
    last = [key.rpartition(".")[2] for key in keys]
    short = last if len({*last}) == len(last) else list(keys)
    for variant, own in plan.variants.items():
        candidate = records.representative(variant) or next(iter(plan.of(variant)), None)
        config = own if candidate is None else flat(candidate.config)
        found = (config.get(f"{key}.name", config.get(key, NONE)) for key in keys)
        values[variant] = dict(zip(short, map(text, found), strict=True))
    return values


def crossed(settings: Settings, baseline: str) -> tuple[Effect, ...]:
    """Returns the main effects and interactions of a complete cross of two settings or more, by the
    variants' settings, without numbers; () if they are none.
    """
    factors = [[name] for name in next(iter(settings.values()))]
    factors = [names for names in factors if len(_levels(settings, names)) > 1]
    while pair := next(
        (two for two in itertools.combinations(factors, 2) if _one(settings, *two)), None
    ):
        factors = [names for names in factors if names not in pair] + [pair[0] + pair[1]]
    sizes = [len(_levels(settings, names)) for names in factors]
    every = [name for names in factors for name in names]
    if len(factors) < 2 or not math.prod(sizes) == len(settings) == len(_levels(settings, every)):
        return ()
    main = [effect for names in factors for effect in _products(settings, baseline, [names])]
    pairs = itertools.combinations(factors, 2)
    joint = [effect for two in pairs for effect in _products(settings, baseline, two)]
    effects = main + joint if len(main + joint) <= MOST else main
    return tuple(effects) if len(effects) <= MOST else ()


def _levels(settings: Settings, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the different values of a group of settings, in the order of the variants."""
    return list(dict.fromkeys(tuple(own[name] for name in names) for own in settings.values()))


def _one(settings: Settings, first: list[str], second: list[str]) -> bool:
    """Whether two groups of settings count as one: some of their values never meet."""
    alone = len(_levels(settings, first)) * len(_levels(settings, second))
    return len(_levels(settings, first + second)) < alone


def _products(settings: Settings, baseline: str, factors: Sequence[list[str]]) -> Iterator[Effect]:
    """Yields the effects of one group of settings, or of two together: of each value, or pair of
    values, against the baseline's.
    """
    base = [tuple(settings[baseline][name] for name in names) for names in factors]
    others = [
        [level for level in _levels(settings, names) if level != usual]
        for names, usual in zip(factors, base, strict=True)
    ]
    cells = math.prod(1 + len(levels) for levels in others)
    for levels in itertools.product(*others):
        weights = {}
        for variant, own in settings.items():
            at = [tuple(own[name] for name in names) for names in factors]
            signs = [(a == b) - (a == c) for a, b, c in zip(at, levels, base, strict=True)]
            if weight := math.prod(signs):
                weights[variant] = weight * cells / len(settings)
        parts = [_written(names, level) for names, level in zip(factors, levels, strict=True)]
        name, usual = " with ".join(parts), _written(factors[0], base[0])
        if len(factors) == 1:
            words = f"{name} in place of {usual}, on average"
            yield Effect(name, MAIN, words, weights)
        else:
            yield Effect(name, INTERACTION, f"{name}, beyond the sum of both", weights)


def _written(names: Sequence[str], level: Sequence[str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, level, strict=True))


def one_at_a_time(settings: Settings, baseline: str) -> tuple[Effect, ...]:
    """Returns the effects of parts that variants change one at a time, of all parts together, and
    of these beyond the sum, without numbers; () for another design.
    """
    usual = settings[baseline].items()
    changes = {
        name: {*own.items()} - {*usual} for name, own in settings.items() if name != baseline
    }
    union = set().union(*changes.values())
    whole = [name for name, changed in changes.items() if changed == union]
    parts = {name: changed for name, changed in changes.items() if name not in whole}
    if len(whole) != 1 or len(parts) < 3 or sum(map(len, parts.values())) != len(union):
        return ()
    every, place = whole[0], f"in place of {baseline}"
    made = [
        Effect(name, PART if name in parts else ALL, f"{name} {place}", {name: 1.0, baseline: -1.0})
        for name in (*parts, every)
    ]
    beyond = {every: 1.0, **dict.fromkeys(parts, -1.0), baseline: len(parts) - 1.0}
    words = f"{every}, beyond the sum of the {len(parts)} by themselves"
    return (*made, Effect(f"{every}, {BEYOND}", BEYOND, words, beyond))


def _judged(effect: Effect, basis: Basis, alpha: float) -> str:
    """Returns the number of an effect, and what follows from it, in words."""
    gap, joint = effect.difference, effect.kind in (INTERACTION, BEYOND)
    if gap is None:
        return (
            f"not known, for a variant has no number to compare ({effect.lacking or 'test data'})"
        )
    size = f"{basis.metric} {signed(gap.mean)}"
    if gap.interval is not None:
        size += f" {interval(gap.interval)}, adjusted p {p_value(gap.p)}"
    if effect.share is not None:
        size += f", {_percent(effect.share)} of the change by all"
    if effect.lacking:
        return f"{size}; undecided, for not every seed has a number ({effect.lacking})"
    if gap.p is None:
        return f"{size}; no test, for {gap.why}"
    if gap.p >= alpha:
        return f"{size}; {'no interaction' if joint else 'no difference'} found"
    good = "better" if (gap.mean > 0) == (basis.mode == "max") else "worse"
    return f"{size}; {f'not additive, {good} than the sum' if joint else good}"


def _percent(share: Share) -> str:
    middle, (low, high) = share
    return f"{100 * middle:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def table(found: Sequence[Effect]) -> Table | None:
    """Returns the table of effects with a sentence for each below it; None without any."""
    if not found:
        return None
    rows = tuple(_row(effect) for effect in found)
    parts = any(effect.kind == PART for effect in found)
    notes = [effect.sentence for effect in found]
    notes.append(
        "Differences to the baseline, adjusted as in the main table; the last, alone. Shares have"
        " Fieller's interval, and none where all together may change nothing."
        if parts
        else "Each is a sum of means, by the model of all variants; p and intervals are adjusted for"
        " all effects here (Sidak). Values are compared with the baseline's. Where there is an"
        " interaction, an average hides it."
    )
    if any(effect.lacking for effect in found):
        notes.append(
            "Not every seed has a number: means are least squares, as if all had, and what is left"
            " may be a selection, so that nothing is decided there."
        )
    weak = frozenset(place for place, effect in enumerate(found) if effect.lacking)
    made = Table("Effects", COLUMNS, rows, frozenset(range(1, 7)), weak=weak, notes=tuple(notes))
    return made if parts else made.only(COLUMNS[:-1])


def _row(effect: Effect) -> tuple[str, ...]:
    """Returns the cells of an effect's row as texts."""
    gap, n = effect.difference, f"{effect.n}"
    share = _percent(effect.share) if effect.share else NONE
    if gap is None:
        return (effect.name, n, *[NONE] * 4, share)
    size = NONE if gap.effect is None else f"{gap.effect:+.2f}"
    return effect.name, n, signed(gap.mean), interval(gap.interval), p_value(gap.p), size, share


def narrow(of: Table, baseline: str) -> list[Table]:
    """Returns the table as a terminal shows it, without seeds and sizes."""
    return [of.only([column for column in of.columns if column not in ("n", "effect size")])]
