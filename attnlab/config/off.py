"""The value of a setting that takes out of a model, or of its training, what the setting puts in."""

import contextlib
from collections.abc import Sequence

from attnlab.config.patterns import is_pattern
from attnlab.config.resolve import load, prepare
from attnlab.config.tree import flat
from attnlab.errors import UserError

OFF = ("none", "false", "None", "0")
_ANY = "?"  # what only a setting that takes every text can be


def off_value(config: str, name: str, overrides: Sequence[str] = ()) -> object:
    """Returns the value that switches off the setting `name` of a config file with these overrides,
    the first of `OFF` that the setting accepts; raises `UserError` if it accepts none or any text,
    is a pattern, or is off already.

    Raises:
      UserError: no such setting, it can be none of these, or it is off already.
    """
    none = UserError(f"{name} has no value that switches it off; write {name}=VALUE")
    if is_pattern(name):
        raise none
    settings, values = load(config, overrides), {}
    if not {name, f"{name}.name"} & {*flat(settings)}:
        prepare(settings, [f"{name}=None"])  # which says what names are near
    for text in ("", _ANY, *OFF):
        with contextlib.suppress(UserError):
            changed = flat(prepare(settings, [f"{name}={text}"] if text else ()))
            values[text] = changed.get(f"{name}.name", changed.get(name))
    current = values.pop("")
    if _ANY in values or not values:
        raise none
    text, value = next(iter(values.items()))
    if value == current:
        raise UserError(f"{name} is {text} already; there is nothing to take out")
    return value
