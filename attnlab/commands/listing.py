"""`launch.py list [KIND]`: what can be named in a config, read off the tables and the code itself."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.progress import table
from attnlab.registry import Table, fields


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of component: the table it is in, and how a command names one."""

    table: str
    use: str


KINDS: Mapping[str, Kind] = {
    "mechanisms": Kind("attnlab.attention:MECHANISMS", "--config.system.attention=NAME"),
    "scores": Kind("attnlab.attention.scores:SCORES", "--config.system.attention.score=NAME"),
    "alignments": Kind("attnlab.attention.alignments:ALIGNMENTS", "--config.system.attention.alignment=NAME"),
    "positions": Kind(
        "attnlab.attention.positions:POSITIONS", "--config.system.positions=NAME, --config.system.decoder_attention.positions=NAME"
    ),
    "systems": Kind("attnlab.systems:SYSTEMS", "--config.system=NAME"),
    "data": Kind("attnlab.data:SOURCES", "--config.data=NAME"),
    "optimizers": Kind("attnlab.training.optimizers:OPTIMIZERS", "--config.optimizer=NAME"),
    "schedules": Kind("attnlab.training.optimizers:SCHEDULES", "--config.schedule=NAME"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One optional word, the kind."""
    parser.add_argument("kind", nargs="?", metavar="KIND", help=f"one of: {', '.join([*KINDS, 'configs'])}; without it, the kinds")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table of one kind, or of the kinds; `UserError` for a kind that is not there."""
    kind = arguments.kind
    if kind is None:
        kinds = [(name, entry.use) for name, entry in KINDS.items()]
        table("kinds ('list KIND' shows one)", ("kind", "how to choose one"), [*kinds, ("configs", "--config=FILE.py:ARGUMENT")])
    elif kind == "configs":
        table("configs", ("file", "about"), config_rows(pathlib.Path("configs"), pathlib.Path(__file__).parents[2] / "configs"))
    elif kind in KINDS:
        module, _, name = KINDS[kind].table.partition(":")
        rows = component_rows(getattr(importlib.import_module(module), name))
        table(f"{kind} ({KINDS[kind].use})", ("name", "module", "about", "fields"), rows)
    else:
        raise UserError(f"list: unknown kind {kind!r}; {nearest(kind, [*KINDS, 'configs'])}")
    return 0


def component_rows(components: Table) -> list[tuple[str, str, str, str]]:
    """For every entry of a table: name, module, first line of the docstring, fields with defaults.

    What cannot be imported (an extra that is not installed) is listed with the reason in place of the docstring.
    """
    rows = []
    for name, path in components.entries.items():
        module = path.partition(":")[0]
        try:
            component = components.resolve(name)
        except UserError as error:
            rows.append((name, module, f"not available: {error}", ""))
            continue
        rows.append((name, module, first_line(inspect.getdoc(component)), ", ".join(field_texts(component))))
    return rows


def field_texts(component: Callable[..., Any]) -> list[str]:
    """Each field a config may set, as "hidden=256", or as "attention=<mechanism>" for a part that must be named."""
    from attnlab.config_tree import defaults

    parts: Mapping[str, Table] = getattr(component, "parts", {})
    values = defaults(component)
    texts = []
    for field in fields(component):
        value = values.get(field, inspect.Parameter.empty)
        if isinstance(value, Mapping):
            value = value.get("name", dict(value))
        if value is not inspect.Parameter.empty:
            texts.append(f"{field}={value}")
        elif field in parts:
            texts.append(f"{field}=<{parts[field].kind}>")
    return texts


def config_rows(*folders: pathlib.Path) -> list[tuple[str, str]]:
    """The config files of the first folder that exists, with the first line of their docstrings; they are not run."""
    folder = next((folder for folder in folders if folder.is_dir()), None)
    files = sorted(folder.glob("*.py")) if folder else []
    return [(str(file), _about(file)) for file in files if not file.name.startswith("_")]


def first_line(text: str | None) -> str:
    """The first line of a docstring, or ""."""
    return (text or "").strip().partition("\n")[0]


def _about(file: pathlib.Path) -> str:
    try:
        return first_line(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))))
    except (SyntaxError, ValueError, OSError) as error:
        return f"not readable: {error}"
