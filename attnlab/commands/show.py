"""`show`: a config as it would be trained, with the meaning and the range of every setting.

`COMMAND --config=... --help` prints the same below the flags of the command.
"""

import argparse
import contextlib
import dataclasses
import typing
from collections.abc import Iterator, Sequence

from attnlab import config as configs
from attnlab.commands.listing import field_meanings, summary
from attnlab.config.checks import ranges
from attnlab.config.schema import is_node
from attnlab.config.tree import ConfigNode
from attnlab.errors import UserError
from attnlab.flags import add_flags
from attnlab.progress import table
from attnlab.tasks.schemas import Settings

Row = tuple[str, str, str, str]
COLUMNS = ("setting", "value", "default", "meaning")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--config` of `show` to its parser."""
    meaning = "the config file and the argument for its get_config; --config.a.b=value changes it"
    add_flags(parser, {"--config=FILE.py:ARGUMENT": meaning})


def run(arguments: argparse.Namespace) -> int:
    """Prints every setting of the config; raises `UserError` if the config is wrong."""
    print_settings(arguments.config, arguments.overrides)
    return 0


def print_settings(path: str | None, overrides: Sequence[str]) -> None:
    """Prints a table of every setting of a config file with overrides (full name, value, default if
    that differs, meaning) and, if its optimizer has a rule for weight decay, a table of which
    parameters that applies to.

    Raises:
      UserError: no config is named, or anything is wrong with it.
    """
    from attnlab.commands.session import config_path

    config = configs.load(config_path(path), overrides)
    flags = "".join(f" --config.{override}" for override in overrides)
    title = f"{path}{flags} (write --config.SETTING=VALUE)"
    table(title, COLUMNS, list(setting_rows(config)), numbers=())
    if rule := config.optimizer.get("decayed"):
        with contextlib.suppress(UserError):  # of a system that wants other images than those
            title = f"\nweight decay by {rule}, of parameters whose paths end so"
            table(title, ("kind", "decays", "parameters"), list(decay_rows(config)), numbers=())


def decay_rows(config: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields for each kind of parameters of a config's system, and for those with and without
    weight decay, a row of three texts: the kind, "yes" or "no", and the last two parts of their
    paths, with commas between.
    """
    import jax

    from attnlab.commands.catalogue import parameter_shapes
    from attnlab.training.kinds import MASKS, kind_of
    from attnlab.training.trained import leaves_by_path

    params = parameter_shapes(config)
    mask = jax.tree.leaves(MASKS[config.optimizer.decayed](params))
    ends: dict[tuple[str, str], list[str]] = {}
    for path, decayed in zip(leaves_by_path(params), mask, strict=True):
        kind = kind_of(path) or "unknown"
        ends.setdefault((kind, "yes" if decayed else "no"), []).append(
            "/".join(path.split("/")[-2:])
        )
    for (kind, decayed), of_kind in sorted(ends.items()):
        yield kind, decayed, ", ".join(dict.fromkeys(of_kind))


def setting_rows(config: Settings) -> Iterator[Row]:
    """Yield a row for every setting of a config that `attnlab.config.prepare` has completed."""
    return _rows(ConfigNode(configs.from_dict(configs.to_dict(config)), "", type(config)))


def _rows(node: ConfigNode) -> Iterator[Row]:
    """Yields the table row (name, value, default, meaning) of every setting of a config node and,
    recursively, of the nodes below it.
    """
    meanings = field_meanings(node.component)
    for key in _ordered_keys(node):
        value, name = node.values[key], node.full_name(key)
        child = node.child(key)
        if child is not None and key in node.tables:
            default = node.defaults.get(key)
            default = default.get("name") if isinstance(default, dict) else default
            yield _row(name, value.name, default or value.name, summary(child.component))
        elif child is not None:
            yield (name, "", "", node.settings[key].help if key in node.settings else "")
        elif key in node.settings:
            setting = node.settings[key]
            usual = value if setting.default is dataclasses.MISSING else setting.default
            yield _row(name, value, usual, _join(setting.help, setting.allowed))
        else:
            meaning = _join(meanings.get(key, ""), _allowed_values(node, key))
            yield _row(name, value, node.defaults.get(key, value), meaning)
        if child is not None:
            yield from _rows(child)


def _ordered_keys(node: ConfigNode) -> list[str]:
    """Returns the keys of a config node in the order for display: those of its class first; unless
    the class has groups, plain values before groups.
    """
    keys_of_class = [key for key in (node.settings or node.defaults) if key in node.values]
    keys = dict.fromkeys([*keys_of_class, *(key for key in node.values if key != "name")])
    if not any(is_node(setting.hint) for setting in node.settings.values()):
        return sorted(keys, key=lambda key: isinstance(node.values[key], Settings))
    return list(keys)


def _row(name: str, value: object, default: object, meaning: str) -> Row:
    return (name, _text(value), "" if value == default else _text(default), meaning)


def _allowed_values(node: ConfigNode, key: str) -> str:
    """Returns the allowed values of a component's field as text: the options of its `Literal`
    annotation, or its range; "" if neither is known.
    """
    annotation = node.hint(key)
    within = next(ranges(node, key), None)
    for alternative in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(alternative) is typing.Literal:
            return "one of: " + ", ".join(map(str, typing.get_args(alternative)))
    return within.text if within else ""


def _join(*parts: str) -> str:
    return "; ".join(part.rstrip(".;") for part in parts if part)


def _text(value: object) -> str:
    """Returns a value as it is written on a command line: 1,2 for a tuple, true for True, '' for
    "".
    """
    if isinstance(value, (tuple, list)) and not value:
        return "()"
    if isinstance(value, (tuple, list)):
        return ",".join(map(_text, value)) + ("," if len(value) == 1 else "")
    if value == "":
        return "''"
    return str(value).lower() if isinstance(value, bool) else str(value)
