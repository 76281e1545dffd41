"""Settings of a command line, "a.b=60", as the values that an experiment file would have:
identities hash values, not how they are spelt.

Needs no jax; planning checks the fields of components. If neither the experiment nor its config
file nor a default has a value for a setting, its text becomes a number, tuple or None only if this
cannot change its meaning; else it stays a text.
"""

import ast
from collections.abc import Mapping
from typing import Any

from attnlab.config import flat, read_config_file
from attnlab.config.patterns import covers
from attnlab.config.resolve import read_value
from attnlab.errors import UserError
from attnlab.experiments.define.axes import text
from attnlab.tasks.schemas import known_defaults


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
    try:
        value = ast.literal_eval(given)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return given
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
