"""What is known of a score beside its number: which way is better, its bounds, its unit, of how many
items it is a share, and on what it depends beside the system, so that numbers are not compared that
may not be.

Tasks declare it (`Task.measures`), `results.json` and `valid.json` record it beside the scores,
reports read it there. Needs no jax.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict

from attnlab.errors import UserError, nearest
from attnlab.records.json_kinds import Finite, Natural

RECORDED = "measures"
"""The key of `results.json` and `valid.json` under which what is known of the scores stands."""
LARGEST = 1e60  # of scores; a loss or perplexity beyond is that of a run that has diverged


@dataclasses.dataclass(frozen=True)
class Measure:
    """A score of a split.

    Attributes:
      better: which way is better.
      low, high: the least and the greatest value there can be; None if there is no such bound.
      of: what the items are called of which it is a share, that is, a mean of zeros and ones
        ("sentences"): "examples", the task's word for its examples, or a name in what its `counts`
        gives; None for what is no share. Tokens of one sentence depend on each other, so a share of
        tokens varies more than as many independent draws would.
      count: in records, how many such items the split has; None in declarations.
      depends: what else decides its size, of `DEPENDS`: runs that differ there are not compared by
        it; None where nobody has said, see `depends_on`.
      unit: its unit in words, for tables; of records, that of `units` of the task too.
    """

    better: Literal["min", "max"]
    low: Finite | None = None
    high: Finite | None = None
    of: str | None = None
    count: Natural | None = None
    depends: tuple[str, ...] | None = None
    unit: str | None = None


class Scores(TypedDict):
    """What is read of `results.json` and `valid.json`, beside the scores by name."""

    measures: NotRequired[Mapping[str, Measure]]


VOCABULARY, TEXT, CLASSES = "vocabulary", "vocabulary.lowercase", "classes"
DEPENDS: Mapping[str, str] = {
    VOCABULARY: "vocabulary",  # a loss of words is no loss of characters
    TEXT: "vocabulary.lowercase or normaliser",  # of a tokenizer: which characters there are
    CLASSES: "classes",  # that there are to choose from
}
"""What a measure may depend on beside the system and the examples, which are compared always; with
its name in messages.
"""
_USUAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("loss", "perplexity", "accuracy"), (VOCABULARY,)),
    **dict.fromkeys(("bits_per_character", "bleu", "chrf"), (TEXT,)),
}


def depends_on(name: str, measure: Measure | None, classes: bool) -> tuple[str, ...]:
    """Returns the parts of `DEPENDS` on which the size of a measure depends: as declared, else the
    classes if there are any, else by its name. One that does not say is taken to depend on the
    classes where there are classes, and else on the vocabulary or the characters of the text if its
    name is one of those of scores of tokens or characters.
    """
    if measure is not None and measure.depends is not None:
        return measure.depends
    return (CLASSES,) if classes else _USUAL.get(name, ())


def share(
    of: str,
    better: Literal["min", "max"] = "max",
    depends: tuple[str, ...] | None = None,
    unit: str | None = None,
) -> Measure:
    """Returns a measure from 0 to 1 that is a share of the items called `of`."""
    return Measure(better, 0.0, 1.0, of, depends=depends, unit=unit)


def units(task: Any) -> dict[str, str]:
    """Returns the units that a task, or its class, gives its scores, by name: those of its measures,
    and its `units`.
    """
    of_measures = {name: measure.unit for name, measure in declared(task).items() if measure.unit}
    return of_measures | dict(getattr(task, "units", {}))


def declared(task: Any) -> dict[str, Measure]:
    """Returns the measures that a task, or its class, declares, by name, where those declared by
    "min" or "max" alone have no bounds; raises UserError for an invalid declaration.

    Raises:
      UserError: one that is declared in no such way.
    """
    return {name: _measure(name, value) for name, value in getattr(task, "measures", {}).items()}


def counted(task: Any, split: str, names: Iterable[str] | None = None) -> dict[str, Measure]:
    """Returns the measures that a task declares, by name, or those of `names` among them, each with
    its unit and, for a share of items, their number in the split as `count`; raises `UserError` for
    an invalid declaration or items that the task does not count. Undeclared names are left out.

    Raises:
      UserError: one that is declared in no such way, or a share of items that the task does not
        count.
    """
    measures = declared(task)
    selected = measures if names is None else [name for name in names if name in measures]
    named = units(task)
    chosen = {name: dataclasses.replace(measures[name], unit=named.get(name)) for name in selected}
    if not any(measure.of for measure in chosen.values()):
        return chosen
    examples = {"examples": task.size(split), task.examples: task.size(split)}
    counts = {**examples, **getattr(task, "counts", lambda split: {})(split)}
    for name, measure in chosen.items():
        if measure.of is None:
            continue
        if measure.of not in counts:
            raise UserError(
                f"measures: {name!r} is a share of {measure.of!r}, which the task does not count;"
                f" {nearest(measure.of, counts)}"
            )
        chosen[name] = dataclasses.replace(measure, count=int(counts[measure.of]))
    return chosen


def as_record(measures: Mapping[str, Measure]) -> dict[str, dict[str, Any]]:
    """Returns measures as dicts for JSON, by name; fields that are None are left out."""
    return {
        name: {key: value for key, value in vars(measure).items() if value is not None}
        for name, measure in measures.items()
    }


def is_finite(value: object) -> bool:
    """Whether it is a number whose fourth power, which tests need, is finite too."""
    return isinstance(value, int | float) and type(value) is not bool and abs(value) <= LARGEST


def _measure(name: str, declaration: Any) -> Measure:
    """Returns a task's declaration ("min", "max" or a Measure) as a Measure; raises UserError if it
    is invalid.
    """
    measure = Measure(declaration) if isinstance(declaration, str) else declaration  # type: ignore[arg-type]  # told below
    if not isinstance(measure, Measure):
        raise UserError(
            f"measures: {name!r} is {declaration!r}; 'min', 'max' or an attnlab.records.measures.Measure is needed"
        )
    if other := [part for part in measure.depends or () if part not in DEPENDS]:
        raise UserError(f"measures: {name!r} depends on {other[0]!r}; {nearest(other[0], DEPENDS)}")
    if measure.better not in ("min", "max"):
        raise UserError(
            f"measures: of {name!r}, {measure.better!r} is better; write 'min' or 'max'"
        )
    if None not in (measure.low, measure.high) and not measure.low < measure.high:  # type: ignore[operator]
        raise UserError(
            f"measures: {name!r} lies between {measure.low!r} and {measure.high!r}; the lower bound comes"
            " first"
        )
    return measure
