"""Tuned settings drawn from ranges instead of lists: the names for experiment files.

    search=Search({"schedule.peak": log_uniform(1e-4, 1e-2), "system.dropout": uniform(0.0, 0.3)},
    sampler="tpe", trials=16)

Every variant gets a study of its own with the same number of trials, so the tuning budget is the
same for all. A trial is one setting trained with the first seed; the best of each variant on
validation then runs with all seeds. Optuna draws the settings (`studies.py`); this module needs
nothing beyond Python.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attnlab.config.tree import frozen, is_plain
from attnlab.errors import UserError, nearest

SAMPLERS = ("tpe", "random", "grid")
PRUNERS = ("halving",)
_KINDS = ("uniform", "log_uniform", "integers", "choice")


@dataclasses.dataclass(frozen=True)
class Range:
    """The range of one tuned setting; made by `uniform`, `log_uniform`, `integers` and `choice`.

    Attributes:
      kind: "uniform", "log_uniform" (the logarithm is uniform), "integers" or "choice".
      low: smallest value; None for a choice.
      high: largest value; None for a choice.
      options: the values of a choice; () otherwise.
    """

    kind: Literal["uniform", "log_uniform", "integers", "choice"]
    low: float | None = None
    high: float | None = None
    options: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """Raises `UserError` unless the kind is known and has valid options ("choice") or valid
        bounds, low below high (all others).
        """
        if self.kind not in _KINDS:
            raise UserError(
                f"search: unknown range {self.kind!r}; {nearest(str(self.kind), _KINDS)}"
            )
        if self.kind == "choice":
            if not self.options:
                raise UserError(
                    "search: choice() is empty; name the values to choose from, choice(16, 32, 64)"
                )
            for value in self.options:
                if not is_plain(value):
                    raise UserError(
                        f"search: choice has {value!r}, a {type(value).__name__}, which no config"
                        " can hold"
                    )
            return
        expected = int if self.kind == "integers" else (int, float)
        for name, value in (("low", self.low), ("high", self.high)):
            is_number = isinstance(value, expected) and not isinstance(value, bool)
            if value is None or not is_number or not math.isfinite(value):
                number = "a whole number" if self.kind == "integers" else "a finite number"
                raise UserError(f"search: {self} has {name}={value!r}, expected {number}")
        assert self.low is not None and self.high is not None
        if self.low >= self.high:
            raise UserError(f"search: {self} is empty; low must be below high")
        if self.kind == "log_uniform" and self.low <= 0:
            raise UserError(f"search: {self} has no logarithm at {self.low!r}; low must be above 0")

    def __str__(self) -> str:
        """Returns the range as source text, such as "log_uniform(0.0001, 0.01)" or "choice(16,
        32)".
        """
        values = self.options if self.kind == "choice" else (self.low, self.high)
        return f"{self.kind}({', '.join(map(repr, values))})"

    def to_dict(self) -> dict[str, Any]:
        """Returns the range as a dict for JSON: its kind, and its bounds or options."""
        if self.kind == "choice":
            return {"kind": self.kind, "options": list(self.options)}
        return {"kind": self.kind, "low": self.low, "high": self.high}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Range":
        """Returns the range that `to_dict` has written as a dict."""
        options = tuple(map(frozen, fields.get("options", [])))
        return cls(fields["kind"], fields.get("low"), fields.get("high"), options)


def uniform(low: float, high: float) -> Range:
    """Returns the range of all numbers from `low` to `high`, drawn uniformly and rounded to four
    significant digits.
    """
    return Range("uniform", low, high)


def log_uniform(low: float, high: float) -> Range:
    """Returns the range of all numbers from `low` > 0 to `high`, drawn with a uniform logarithm and
    rounded to four significant digits.
    """
    return Range("log_uniform", low, high)


def integers(low: int, high: int) -> Range:
    """Returns the range of whole numbers from `low` to `high`, both included."""
    return Range("integers", low, high)


def choice(*options: Any) -> Range:
    """Returns the range that consists of `options`: any values that a config may hold, component
    names too.
    """
    return Range("choice", options=options)


@dataclasses.dataclass(frozen=True)
class Search:
    """How tuned settings are searched.

    Attributes:
      space: dotted config key to range.
      sampler: "tpe" (tree-structured Parzen estimator, Bergstra et al. 2011), "random", or "grid"
        over choices.
      trials: settings tried per variant.
      pruner: None, or "halving" (successive halving by rounds, Jamieson & Talwalkar 2016): the
        trials of a round train up to the same evaluation, and the best third of them, by their best
        validation score so far, continues. See `attnlab.experiments.run.searching`.
      at_once: settings that "tpe" draws per variant before it uses new results. It is a separate
        number, so that the draws do not depend on the number of slots.
      seed: of the sampler.
      finish: with a pruner, the least number of trials of every round that train to the end.
    """

    space: Mapping[str, Range]
    sampler: str = "tpe"
    trials: int = 16
    pruner: str | None = None
    at_once: int = 4
    seed: int = 0
    finish: int = 2

    def __post_init__(self) -> None:
        """Raises `UserError` for an unknown sampler or pruner, a number out of range, an invalid
        space, or a grid that does not fit the trials.
        """
        for name, choices in (("sampler", SAMPLERS), ("pruner", (*PRUNERS, None))):
            if (value := getattr(self, name)) not in choices:
                near = nearest(str(value), [name for name in choices if name])
                raise UserError(f"search.{name} is {value!r}; {near}")
        for name in ("trials", "at_once", "seed", "finish"):
            least, most = (0, 2**32 - 1) if name == "seed" else (1, 10**5)
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise UserError(
                    f"search.{name} is {value!r}, expected a whole number of at least {least} and"
                    f" at most {most:,}"
                )
        _check_space(self.space)
        if self.sampler == "grid":
            self._check_grid()

    def _check_grid(self) -> None:
        """Raises `UserError` unless every range is a choice and the grid has at least `trials`
        points.
        """
        for key, values in self.space.items():
            if values.kind != "choice":
                raise UserError(
                    f"search.space[{key!r}] is {values}: a grid needs choice(...), or take"
                    " sampler='random'"
                )
        points = math.prod(len(values.options) for values in self.space.values())
        if self.trials > points:
            raise UserError(
                f"search.trials is {self.trials}, but the grid has {points} points; take"
                f" trials={points}"
            )

    def rounds(self) -> Sequence[int]:
        """Returns a list of the numbers of settings that each round draws per variant: [trials],
        but with the sampler "tpe" `startup` in the first round and then `at_once` in each, `trials`
        in all.
        """
        if self.sampler != "tpe":
            return [self.trials]
        first = min(self.trials, self.startup)
        whole, rest = divmod(self.trials - first, self.at_once)
        return [first, *[self.at_once] * whole, *([rest] if rest else [])]

    @property
    def startup(self) -> int:
        """Trials that "tpe" draws at random before it uses its model."""
        return max(self.at_once, self.trials // 3)

    def to_dict(self) -> dict[str, Any]:
        """Returns the search as a dict for plan.json; `finish` only if it is not the default, so
        that older plans keep their hash.
        """
        names = ("sampler", "trials", "pruner", "at_once", "seed")
        fields = {name: getattr(self, name) for name in names}
        fields |= {"finish": self.finish} if self.finish != type(self).finish else {}
        return {**fields, "space": {key: values.to_dict() for key, values in self.space.items()}}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Search":
        """Returns the search that `to_dict` has written as a dict; ignores other keys, and takes
        defaults for missing ones.
        """
        space = {key: Range.from_dict(values) for key, values in fields["space"].items()}
        names = {field.name for field in dataclasses.fields(cls)} & {*fields}
        return cls(**{**{name: fields[name] for name in names}, "space": space})


def _check_space(space: Any) -> None:
    """Raises `UserError` unless a search space is a non-empty mapping from settings to ranges."""
    if not isinstance(space, Mapping) or not space:
        raise UserError(
            "search.space is empty; name what to tune, {'schedule.peak': log_uniform(1e-4, 1e-2)}"
        )
    for key, values in space.items():
        if not isinstance(values, Range):
            raise UserError(
                f"search.space[{key!r}] is {values!r}, expected uniform, log_uniform, integers or"
                " choice"
            )
