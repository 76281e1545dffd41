"""`show`: a config as it would be trained, with what every setting means and may be.

`COMMAND --config=... --help` prints the same below the flags of the command.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from attnlab import config as configs
from attnlab.commands import describe
from attnlab.config.checks import ranges
from attnlab.config.schema import is_node
from attnlab.config.tree import Place
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.tasks.schemas import Settings

Row = tuple[str, str, str, str]
COLUMNS = ("setting", "value", "default", "meaning")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The config."""
    parser.add_argument(
        "--config",
        metavar="FILE.py:ARGUMENT",
        help="the config file and the argument for its get_config; --config.a.b=value changes it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the config; raises `UserError` for what is wrong with it."""
    tell(arguments.config, arguments.overrides)
    return 0


def tell(path: str | None, overrides: Sequence[str]) -> None:
    """Print a table of every setting of a config file with overrides: its full name, its value, its
    default where that is another, and what it means.

    Raises:
      UserError: no config is named, or anything is wrong with it.
    """
    from attnlab.commands.session import wanted_config

    config = wanted_config(path, overrides)
    title = (
        f"{path}{''.join(f' --config.{one}' for one in overrides)} (write --config.SETTING=VALUE)"
    )
    table(title, COLUMNS, list(rows(config)), numbers=())
    if rule := config.optimizer.get("decayed"):
        with contextlib.suppress(UserError):  # of a system that wants other images than those
            title = f"\nweight decay by {rule}, of parameters whose paths end so"
            table(title, ("kind", "decays", "parameters"), list(decays(config)), numbers=())


def decays(config: Settings) -> Iterator[tuple[str, str, str]]:
    """For each kind of parameters of a config's system: whether weight decay reaches them, and the
    ends of their paths.
    """
    import jax

    from attnlab.commands.networks import parameter_shapes
    from attnlab.training.kinds import MASKS, by_path, kind_of

    params = parameter_shapes(config)
    mask = jax.tree.leaves(MASKS[config.optimizer.decayed](params))
    ends: dict[tuple[str, str], list[str]] = {}
    for (path, _), decayed in zip(by_path(params), mask, strict=True):
        kind = kind_of(path) or "unknown"
        ends.setdefault((kind, "yes" if decayed else "no"), []).append(
            "/".join(path.split("/")[-2:])
        )
    for (kind, decayed), of_kind in sorted(ends.items()):
        yield kind, decayed, ", ".join(dict.fromkeys(of_kind))


def rows(config: Settings) -> Iterator[Row]:
    """A row for every setting of a config that `attnlab.config.prepare` has completed."""
    return _rows(Place(configs.from_dict(configs.to_dict(config)), "", type(config)))


def _rows(place: Place) -> Iterator[Row]:
    meanings = describe.meanings(place.component)
    for key in _ordered(place):
        value, name = place.node[key], place.name(key)
        child = place.child(key)
        if child is not None and key in place.tables:
            default = _named(place.defaults.get(key))
            yield _row(name, value.name, default or value.name, describe.about(child.component))
        elif child is not None:
            yield (name, "", "", place.described[key].help if key in place.described else "")
        elif key in place.described:
            one = place.described[key]
            same = value if one.default is dataclasses.MISSING else one.default
            yield _row(name, value, same, _joined(one.help, one.allowed))
        else:
            meaning = _joined(meanings.get(key, ""), _allowed(place, key))
            yield _row(name, value, place.defaults.get(key, value), meaning)
        if child is not None:
            yield from _rows(child)


def _ordered(place: Place) -> list[str]:
    """The keys of a node, those that its class describes in that order; values before groups."""
    known = [key for key in (place.described or place.defaults) if key in place.node]
    keys = dict.fromkeys([*known, *(key for key in place.node if key != "name")])
    if not any(is_node(one.hint) for one in place.described.values()):
        return sorted(keys, key=lambda key: isinstance(place.node[key], Settings))
    return list(keys)


def _row(name: str, value: Any, default: Any, meaning: str) -> Row:
    return (name, _text(value), "" if value == default else _text(default), meaning)


def _named(part: Any) -> str | None:
    """The name of the component that a field has by default."""
    return part.get("name") if isinstance(part, dict) else part


def _allowed(place: Place, key: str) -> str:
    """What the value of a component's field may be, where its annotation or its range say so."""
    hint, within = place.hint(key), next(ranges(place, key), None)
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is typing.Literal:
            return "one of: " + ", ".join(map(str, typing.get_args(one)))
    return within.text if within else ""


def _joined(*parts: str) -> str:
    return "; ".join(part.rstrip(".;") for part in parts if part)


def _text(value: Any) -> str:
    """A value as a command line says it."""
    if isinstance(value, (tuple, list)) and not value:
        return "()"
    if isinstance(value, (tuple, list)):
        return ",".join(map(_text, value)) + ("," if len(value) == 1 else "")
    if value == "":
        return "''"
    return str(value).lower() if isinstance(value, bool) else str(value)
