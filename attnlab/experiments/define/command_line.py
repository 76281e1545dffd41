"""What a command line says of an experiment: its settings as values, and an experiment from its
flags, written as an experiment file. Needs no jax.

    --config=configs/translation.py:rnnsearch --grid system.attention.score=dot,additive --tune schedule.peak=1e-3,3e-3

`--grid` lists the variants, the rows of the report. `--tune` gives lists, and `--search` ranges, of
settings that validation chooses for every row. The file is an ordinary experiment file; a claim or
a budget can be added later.

A setting, "a.b=60", becomes the value that an experiment file would have: identities hash values,
not how they are spelt. Planning checks the fields of components. If neither the experiment nor its
config file nor a default has a value for a setting, its text becomes a number, tuple or None only
if this cannot change its meaning; else it stays a text.
"""

import ast
import dataclasses
import functools
import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlab.config import config_name, flat, is_below, off_value, read_config_file
from attnlab.config.patterns import covers, is_dotted_name
from attnlab.config.resolve import read_value
from attnlab.errors import UserError, nearest
from attnlab.experiments.define.axes import grid, short_names, text
from attnlab.experiments.define.search import Range, Search, choice, integers, log_uniform, uniform
from attnlab.tasks.schemas import known_defaults

_RANGES: Mapping[str, Any] = {
    make.__name__: make for make in (uniform, log_uniform, integers, choice)
}
_MEASURES: Mapping[str, tuple[str, str]] = {
    "translation": ("bleu", "max"),
    "pronunciation": ("phoneme_error_rate", "min"),
    "classification": ("accuracy", "max"),
}
"""What is reported of a task where the command line does not say; of all others, the loss."""
_LESS = ("loss", "perplexity", "bits_per_character", "phoneme_error_rate", "word_error_rate")
"""Scores of which less is better; planning compares it with what the task says."""


@dataclasses.dataclass(frozen=True)
class InlineExperiment:
    """The flags of a command line that replace an experiment file.

    Attributes:
      config: config file and argument.
      grid: "key=value,value" each: every combination is a row of the report.
      tune: "key=value,value" each: every combination is tried for every row.
      search: "key=log_uniform(1e-4,1e-2)" each, in place of `tune`.
      trials: settings that a search tries for each row; None for the default.
      pruner: of a search, or None.
      measure: the reported measure, "exact" or "exact,max"; "" for the default of the task.
      without: "key,key" each, in place of `grid`: rows are the whole, it without each of these
        settings, and it without all; "key=value" says what stands in its place.
      overrides: "a.b=value" each, of all rows; they may be what `without` switches off.
    """

    config: str
    grid: Sequence[str] = ()
    tune: Sequence[str] = ()
    search: Sequence[str] = ()
    trials: int | None = None
    pruner: str | None = None
    measure: str = ""
    without: Sequence[str] = ()
    overrides: Sequence[str] = ()

    @property
    def name(self) -> str:
        """A name for the experiment: the config's argument, or the name of the config."""
        path, _, argument = self.config.partition(":")
        return re.sub(r"[^A-Za-z0-9_]+", "_", argument).strip("_") or config_name(path)

    def file(self) -> str:
        """Returns the source text of an experiment file that defines the same experiment as the
        flags; raises `UserError` if the flags compare and tune nothing, do not fit together or are
        malformed.

        Raises:
          UserError: nothing to compare or tune, a malformed flag, a value given twice, no such
            range.
        """
        if not (self.grid or self.without or self.tune or self.search):
            raise UserError(
                "nothing is compared or tuned; add --grid KEY=VALUE,VALUE, --without KEY,KEY, --tune"
                " KEY=VALUE,VALUE or --search KEY=RANGE"
            )
        if self.grid and self.without:
            raise UserError("--grid and --without are both given; take one of them")
        if not self.search and (self.trials is not None or self.pruner is not None):
            raise UserError(
                "--trials and --pruner are of a search; add --search KEY=log_uniform(1e-4,1e-2)"
            )
        compare = self._values("--grid", self.grid)
        tune = self._values("--tune", self.tune)
        measure, select = self._scores()
        ablated = self._rows()
        compared = [*compare, *dict.fromkeys(key for row in ablated.values() for key in row)]
        lines = [f"question={self._question(compared)!r},", f"config={self.config!r},"]
        lines += [f"compare=grid({compare!r})," if compare else f"compare=rows({ablated!r}),"]
        lines += [f"tune=grid({tune!r}),"] if tune else []
        lines += [f"search=Search({self._search()}),"] if self.search else []
        lines += [f"measure={measure!r},", f"select={select!r},"]
        body = "\n".join(f"        {line}" for line in lines)
        return (
            f'"""{self._command()}\n\nWritten by that command.\n"""\n\n{_HEAD}    return'
            f" Experiment(\n{body}\n    )\n"
        )

    def _values(self, flag: str, arguments: Iterable[str]) -> dict[str, tuple[Any, ...]]:
        """Parses the "key=value,value" arguments of a flag into {key: tuple of values}, with the
        types that the settings have in the config; raises `UserError` for malformed or repeated
        ones.
        """
        settings: dict[str, tuple[Any, ...]] = {}
        for key, many in _keys(flag, arguments):
            settings[key] = tuple(typed({key: part}, {}, self.config)[key] for part in _parts(many))
        if settings:
            _with_prefix(flag, lambda: grid(settings))
        return settings

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Returns the variants {label: overrides} for an experiment without a grid: the config
        unchanged and, for `--without`, the config without each of those settings and, if they are
        several, without all of them.
        """
        words = [word for given in self.without for word in _parts(given)]
        off: dict[str, Any] = {}
        for key, value in _keys("--without", words):
            switched = functools.partial(off_value, self.config, key, self.overrides)
            given = typed({key: value}, {}, self.config)
            off[key] = given[key] if value else _with_prefix("--without", switched)
        for key, other in itertools.permutations(off, 2):
            if is_below(key, [other]):
                raise UserError(f"--without: {key} lies in {other}; leave one of them out")
        names = short_names(list(off)) if off else []
        alone = {f"without {name}": {key: off[key]} for name, key in zip(names, off, strict=True)}
        every = {"without all": off} if len(off) > 1 else {}
        return {"whole": {}, **alone, **every} if off else {"as configured": {}}

    def _search(self) -> str:
        """Returns the arguments of the call `Search(...)` as source text, made from `--search`,
        `--trials` and `--pruner`.
        """
        space = {key: _range(key, bounds) for key, bounds in _keys("--search", self.search)}
        further: dict[str, Any] = {"trials": self.trials, "pruner": self.pruner}
        further = {name: value for name, value in further.items() if value is not None}
        _with_prefix("--search", lambda: Search(space, **further))
        ranges = ", ".join(f"{key!r}: {interval}" for key, interval in space.items())
        return f"{{{ranges}}}" + "".join(f", {name}={value!r}" for name, value in further.items())

    def _scores(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Returns (metric, "min" or "max") of the reported measure, from `--measure` or by the
        task's default, and the same of the score that selects candidates.
        """
        task = read_config_file(self.config).get("task", "")
        select = ("accuracy", "max") if task == "classification" else ("loss", "min")
        name, _, mode = self.measure.partition(",")
        if mode not in ("", "min", "max"):
            raise UserError(f"--measure={self.measure}: {mode!r}; {nearest(mode, ('min', 'max'))}")
        if name:
            return (name, mode or ("min" if name in _LESS else "max")), select
        return _MEASURES.get(task, ("loss", "min")), select

    def _question(self, compare: Sequence[str]) -> str:
        """Returns the question of the experiment for the report, which names the compared settings,
        or the tuned ones if nothing is compared.
        """
        tuned = [word.partition("=")[0] for word in (*self.tune, *self.search)]
        what = " and ".join(compare) if compare else self.config
        once = f"How good is {what} once {' and '.join(tuned)} are tuned?"
        return f"How do settings of {what} compare?" if compare else once

    def _command(self) -> str:
        """Returns the `sweep` command line with these flags, except the overrides, and without
        backslashes and triple quotes, to be written at the top of the experiment file.
        """
        flags = [("config", self.config)]
        for name in ("grid", "without", "tune", "search"):
            flags += [(name, word) for word in getattr(self, name)]
        flags += [(name, getattr(self, name)) for name in ("trials", "pruner", "measure")]
        words = ["sweep", *(f"--{name}={value}" for name, value in flags if value)]
        return shlex.join(words).replace("\\", "").replace('"""', "")


_HEAD = """from attnlab.experiments import Experiment, Search, choice, grid, integers, log_uniform, rows, uniform  # noqa: F401


def get_experiment(argument: str = "") -> Experiment:
"""


def _keys(flag: str, arguments: Iterable[str]) -> list[tuple[str, str]]:
    """Splits "key=text" arguments of a flag into (key, text) pairs, of `--without` also "key", with
    ""; raises `UserError` for a malformed argument or a repeated key.
    """
    alone = flag == "--without"
    texts: dict[str, str] = {}
    for word in arguments:
        key, equals, value = word.partition("=")
        key = key.removeprefix("config.")
        if not (value or (alone and not equals)) or not is_dotted_name(key):
            raise UserError(
                f"{flag} {word}: expected a setting and its values, such as {_LIKE[flag]}"
            )
        if key in texts:
            advice = "leave one of them out" if alone else "put all of its values into one"
            raise UserError(f"{flag} {word}: {key!r} is given twice; {advice}")
        texts[key] = value
    return list(texts.items())


_LIKE = {
    "--without": "system.positions",
    "--grid": "system.attention.score=dot,additive",
    "--tune": "schedule.peak=1e-3,3e-3",
    "--search": "schedule.peak=log_uniform(1e-4,1e-2)",
}


def _parts(text: str) -> list[str]:
    """Splits a text at the commas that are outside brackets and quotes, and strips the parts."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        depth += 0 if quote else (sign in "([") - (sign in ")]")
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _range(key: str, text: str) -> Range:
    """Parses a text such as "log_uniform(1e-4, 1e-2)" into a `Range`; raises `UserError`, with the
    key, if it is none.
    """
    match = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if match is None:
        raise UserError(f"--search {key}={text}: expected a range, such as {_LIKE['--search']}")
    if match[1] not in _RANGES:
        raise UserError(f"--search {key}={text}: {match[1]!r}; {nearest(match[1], _RANGES)}")
    words = {"true": True, "false": False}
    bounds = [words.get(part, _literal(part)) for part in _parts(match[2]) if part]
    try:
        made: Range = _with_prefix(f"--search {key}={text}", lambda: _RANGES[match[1]](*bounds))
    except TypeError:
        raise UserError(
            f"--search {key}={text}: expected two numbers, such as {_LIKE['--search']}"
        ) from None
    return made


def _literal(given: str) -> Any:
    """Returns the value of a text that is a Python literal, else the text itself."""
    try:
        return ast.literal_eval(given)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return given


def _with_prefix(where: str, make: Any) -> Any:
    """Calls `make` and returns its result; puts `where` before the message of a `UserError` that it
    raises.
    """
    try:
        return make()
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def typed(settings: Mapping[str, str], base: Mapping[str, Any], config: str) -> dict[str, Any]:
    """Converts {setting: text} to {setting: value}, with the type of the setting's value in `base`,
    else in the config file `config` or the defaults, else as a Python number or tuple; any other
    text stays text.

    Args:
      settings: dotted name to text.
      base: the experiment's own settings, which say the type first.
      config: its config file and argument.

    Raises:
      UserError: the config file cannot be run.
    """
    if not settings:
        return {}
    places = (base, {**known_defaults(), **flat(read_config_file(config))})
    return {
        name: _value(given, [place[key] for place in places for key in place if covers(name, key)])
        for name, given in settings.items()
    }


def same(first: Any, second: Any) -> bool:
    """Returns whether two values mean the same setting, where one may be a text (as earlier
    versions stored it) that reads as the other.
    """
    if first is None or second is None:
        return first is second or "None" in (first, second)
    if isinstance(first, str) != isinstance(second, str):
        given, value = (first, second) if isinstance(first, str) else (second, first)
        return _read(given, value) == (
            _read(text(value), value) if isinstance(value, list) else value
        )
    return bool(first == second)


def spelt(settings: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings, each with its value as written in `before` if both mean the same, so
    that what was planned with a text keeps its id.
    """
    return {
        name: before[name] if name in before and same(before[name], value) else value
        for name, value in settings.items()
    }


def _value(given: str, old: list[Any]) -> Any:
    """Converts the text of a setting to the type of the first of the `old` values with which that
    works; else to a Python number or tuple if it is spelt as one; else returns the text.
    """
    for previous in old:
        value = _read(given, previous)
        if value is not None:
            return value
    value = _literal(given)
    return value if isinstance(value, int | float | tuple) and text(value) == given else given


def _read(given: str, old: Any) -> Any:
    """Converts a text to the type of the value `old`; returns None if that is impossible or `old`
    is None.
    """
    if old is None:
        return None
    try:
        return read_value(given, tuple(old) if isinstance(old, list) else old, lambda: Any, "")
    except UserError:
        return None
