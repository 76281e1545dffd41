"""Differences between variants that are not the question: settings outside the system, the test data,
and what else the size of a measure depends on.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attnlab.config import flat, is_below, tree
from attnlab.experiments.define import SHOWN, grouped, is_derived, reached, several, text
from attnlab.experiments.plan import Candidate
from attnlab.experiments.report.collect import Record, Records
from attnlab.pages.tables import NONE
from attnlab.records.measures import CLASSES, DEPENDS, TEXT, VOCABULARY, depends_on

Kind = Literal["unequal", "compared", "tuned", "budget"]
Settings = Mapping[str, Any]

_SYSTEM = "system"  # nodes in which variants are expected to differ
_WITHOUT_EFFECT = (
    "seed",
    "parallel",
    "training.log_every",
    "decoding.batch",
    "checkpoint.every",
    "checkpoint.keep",
)
_TEST_DATA = ("task", "data")  # the nodes that decide which examples the test split has
_DIGITS = 12


@dataclasses.dataclass(frozen=True)
class Differing:
    """A setting outside the system in which variants differ.

    Attributes:
      name: dotted; the node if its components have different names.
      kind: "compared" where the difference can be told from all others, because each variant that
        has another value than the baseline has a partner with the baseline's value that differs
        from it in this alone; "tuned" and "budget" by what has set it; else "unequal": its effect
        cannot be separated from the other differences.
      values: variant to its value as text, "-" if it has none.
    """

    name: str
    kind: Kind
    values: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """Returns the setting with its values and the variants that have them, at most `SHOWN`
        values: "training.steps 12 (additive, location), 24 (general)".
        """
        groups = grouped((value, variant) for variant, value in self.values.items())
        first = itertools.islice(groups.items(), SHOWN)
        shown = [f"{value} ({several(variants)})" for value, variants in first]
        return f"{self.name} {', '.join(shown)}" + (
            f" and {len(groups) - SHOWN} more values" if len(groups) > SHOWN else ""
        )


@functools.lru_cache(maxsize=2)
def differing(records: Records) -> tuple[Differing, ...]:
    """Returns a `Differing` (name, kind, values by variant), ordered by name, for each setting
    outside the system in which variants differ, by the chosen candidates (before the choice, the
    first of each).

    Settings that change no number are left out, and so are tuned ones before the choice.
    """
    plan = records.plan
    standing = {
        variant: chosen
        for variant in plan.variants
        if (chosen := records.representative(variant) or next(iter(plan.of(variant)), None))
    }
    configs = _comparable(standing)
    texts = tree.differing(*configs.values(), text=text, absent=NONE)
    names = [name for name in sorted(texts) if not is_below(name, (_SYSTEM,))]
    varied = {name: dict(zip(configs, texts[name], strict=True)) for name in names}
    set_by = {"tuned": {key for chosen in standing.values() for key in chosen.tuned}}
    set_by["budget"] = {chosen.budget["knob"] for chosen in standing.values() if chosen.budget}
    kinds = {name: _kind(name, varied, configs, set_by, plan.baseline) for name in varied}
    if records.choice is None:
        varied = {name: each for name, each in varied.items() if kinds[name] != "tuned"}
    return tuple(Differing(name, kinds[name], each) for name, each in varied.items())


def _comparable(standing: Mapping[str, Candidate]) -> dict[str, dict[str, Any]]:
    """Returns, by variant, the flat config of its candidate in `standing` without settings that
    have no effect on numbers; a node outside the system whose component differs between variants
    becomes one value, the component's name.
    """
    settings = {variant: flat(candidate.config) for variant, candidate in standing.items()}
    names = [key for key in tree.differing(*settings.values(), text=text) if key.endswith(".name")]
    other = {name.removesuffix(".name") for name in names if not is_below(name, (_SYSTEM,))}
    for config in settings.values():
        for node in other:
            name = config.get(f"{node}.name", NONE)
            for key in [key for key in config if is_below(key, (node,))]:
                del config[key]
            config[node] = name
        for key in [key for key in config if is_below(key, _WITHOUT_EFFECT)]:
            del config[key]
    return settings


def _kind(
    name: str,
    varied: Mapping[str, Mapping[str, str]],
    configs: Mapping[str, Settings],
    set_by: Mapping[str, set[str]],
    baseline: str,
) -> Kind:
    """Returns the kind of the differing setting `name` (`varied` has values by setting and
    variant): "tuned", "budget" (set by it), "compared" (each variant with another value has a
    partner that differs in it alone, or changes all that others change one at a time), else
    "unequal". Settings that change with this one from variant to variant count as one with it.
    """
    if _near(name, set_by["tuned"]):
        return "tuned"
    if _near(name, set_by["budget"]):
        return "budget"
    values = varied[name]
    together = {other for other, each in varied.items() if _partition(each) == _partition(values)}
    free = {*set_by["tuned"], *set_by["budget"]}
    rests = {
        variant: {key: each[key] for key in each if key not in together and not _near(key, free)}
        for variant, each in configs.items()
    }
    usual = values.get(baseline, next(iter(values.values())))
    for variant, value in values.items():
        partners = (
            other for other in values if values[other] == usual and rests[other] == rests[variant]
        )
        whole = variant in _wholes(configs, baseline, free)
        if value != usual and not whole and not any(True for _ in partners):
            return "unequal"
    return "compared"


def _wholes(configs: Mapping[str, Settings], baseline: str, free: set[str]) -> list[str]:
    """Returns the names of the variants whose changes to the baseline's config (`configs` by
    variant) are exactly those that other variants make one at a time, as of `sweep --without`, or
    that change nothing; the tuned or solved settings `free` do not count.
    """
    usual = configs.get(baseline, {})
    changes = {
        name: {f"{k}={x}" for k, x in each.items() if x != usual.get(k) and not _near(k, free)}
        for name, each in configs.items()
    }
    parts = {name: [part for part in changes.values() if part < changes[name]] for name in changes}
    return [n for n, each in parts.items() if sorted(itertools.chain(*each)) == sorted(changes[n])]


def _partition(values: Mapping[str, str]) -> set[frozenset[str]]:
    """Returns the sets of variants that have the same value."""
    groups = grouped((value, variant) for variant, value in values.items())
    return {frozenset(variants) for variants in groups.values()}


def _near(name: str, settings: set[str]) -> bool:
    """Returns whether one of `settings` determines the setting `name`: the same one, a node that
    contains it, or a part of it.
    """
    plain = [setting.removesuffix(".name") for setting in settings]
    return is_below(name, plain) or any(is_below(setting, (name,)) for setting in plain)


@dataclasses.dataclass(frozen=True)
class Apart:
    """Pairs of variants whose numbers are not compared: they were scored on different test examples,
    or differ in something else on which the measure depends.

    Attributes:
      other: all such pairs.
      unsaid: those of them where the data is not what is compared, or does not excuse it.
    """

    other: frozenset[frozenset[str]] = frozenset()
    unsaid: frozenset[frozenset[str]] = frozenset()

    def refuses(self, weights: Mapping[str, float]) -> bool:
        """Returns whether the contrast with these `weights` by variant is invalid: it compares
        scores of different test examples, and the data is not what the experiment compares.

        Differences within the same examples may be compared across examples, "is the gain larger on
        long sentences?".
        """
        groups: list[list[str]] = []
        for variant in weights:
            mine = (
                group
                for group in groups
                if not any(frozenset((variant, other)) in self.other for other in group)
            )
            group = next(mine, None)
            groups.append([variant]) if group is None else group.append(variant)
        if all(abs(sum(weights[variant] for variant in group)) < 1e-9 for group in groups):
            return False
        return any(frozenset(pair) in self.unsaid for pair in itertools.combinations(weights, 2))


def apart(records: Records, metric: str) -> Apart:
    """Returns an `Apart` with the pairs of variants whose chosen candidates' scores by `metric`
    cannot be compared, and those among them whose test data is not what the experiment compares; it
    is empty before the choice.
    """
    standing = {variant: records.representative(variant) for variant in records.plan.variants}
    trials = {name: records.of(candidate) for name, candidate in standing.items() if candidate}
    pairs = itertools.combinations(trials, 2)
    other = {frozenset((a, b)) for a, b in pairs if unlike(trials[a], trials[b], metric)}
    if not other:
        return Apart()
    decisive = [setting for setting in differing(records) if is_below(setting.name, _TEST_DATA)]
    unsaid = set()
    for pair in other:
        kinds = {each.kind for each in decisive if len({*map(each.values.get, pair)}) > 1}
        if kinds != {"compared"}:
            unsaid.add(pair)
    return Apart(frozenset(other), frozenset(unsaid))


def unlike(records: Sequence[Record], usual: Sequence[Record], metric: str) -> str:
    """Why the numbers of a measure of these trials are not compared; "" if they are."""
    scale = other_scale(records, usual, metric)
    return scale if scale or is_derived(metric) else other_test_data(records, usual)


def other_scale(records: Sequence[Record], usual: Sequence[Record], metric: str) -> str:
    """Returns in words the first thing on which the size of `metric` depends (such as the
    vocabulary) and that differs among the scored trials of `records` and `usual` taken together; ""
    if there is none. Judged by what the runs have learned; where that is not on record, by the
    settings of the vocabulary.
    """
    wanted = reached(metric) if is_derived(metric) else None
    name = wanted.metric if wanted else metric
    if is_derived(name):
        return ""
    trials = [run for run in (*records, *usual) if run.scores["test"] or run.scores["valid"]]
    parts = {part for run in trials for part in _depends(run, name)}
    for part in DEPENDS:
        learned = {run.learned[part] for run in trials if part in run.learned}
        unsure = part != CLASSES and any(part not in run.learned for run in trials)
        nodes: list[Any] = [run.candidate.config.get(VOCABULARY, {}) for run in trials if unsure]
        settings = {str(bool(node.get("lowercase")) if part == TEXT else node) for node in nodes}
        if part in parts and (len(learned) > 1 or len(settings) > 1):
            return f"another {DEPENDS[part]}, on which {name} depends"
    return ""


def _depends(record: Record, name: str) -> tuple[str, ...]:
    measures = [record.measures[split].get(name) for split in ("test", "valid")]
    return depends_on(name, measures[0] or measures[1], CLASSES in record.learned)


def other_test_data(records: Sequence[Record], usual: Sequence[Record]) -> str:
    """Returns as text the first difference of test data among the trials `records`, or between them
    and the trials `usual` (names of settings, else both digests); "" if there is none. By the
    digests of what was read; where one has none, by the settings of task and data.
    """
    mine, theirs = _read(records), _read(usual)
    pairs = (
        (left, right)
        for left in sorted(mine)
        for right in sorted({*theirs, *mine})
        if (left[0] != right[0] if left[0] and right[0] else left[1] != right[1])
    )
    for left, right in pairs:
        first, second = (json.loads(each[1]) for each in (left, right))
        names = [
            name for name in {**first, **second} if first.get(name, NONE) != second.get(name, NONE)
        ]
        digests = f"{left[0][:_DIGITS]}, not {right[0][:_DIGITS]}"
        return f"another {several(names)}" if names else digests
    return ""


def _read(records: Sequence[Record]) -> set[tuple[str, str]]:
    """Returns, for the trials that have test scores, the distinct pairs of the test split's digest
    ("" if unknown) and the settings of task and data as JSON.
    """
    scored = [record for record in records if record.scores["test"]]
    configs = {record.candidate.id: record.candidate.config for record in scored}
    settings = {
        name: json.dumps({key: flats[key] for key in flats if is_below(key, _TEST_DATA)})
        for name, flats in ((name, flat(config)) for name, config in configs.items())
    }
    return {(record.data.get("test", ""), settings[record.candidate.id]) for record in scored}
