"""`launch.py list [KIND [NAME]]`: the names for configs, and components described as text, read from
the tables and the code: fields and their meanings, card, capabilities, formula, contents of the
memory. A component of a user's own that declares no card is described with blanks.

`launch.py list --markdown > docs/mechanisms.md` writes the same tables as a page (`catalogue`).
"""

import argparse
import ast
import dataclasses
import inspect
import pathlib
import re
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence

from attnlab.config import SHIPPED
from attnlab.config.registry import Components, Parts, Table, fields, import_object
from attnlab.config.schema import first_paragraph
from attnlab.errors import UserError, nearest
from attnlab.layers.cards import Card, card_of
from attnlab.progress import table

if typing.TYPE_CHECKING:
    from attnlab.attention.mixer import Capabilities
    from attnlab.attention.protocol import Attention


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of component.

    Attributes:
      room: the module with its table, below `attnlab`.
      settings: the settings of a config that name one.
      columns: shown next to the name.
      table: of the table; "" if it is called as the kind is.
    """

    room: str
    settings: tuple[str, ...]
    columns: tuple[str, ...] = ("module", "about", "fields")
    table: str = ""

    @property
    def use(self) -> str:
        """The flags of a command line that name one."""
        return ", ".join(f"--config.{setting}=NAME" for setting in self.settings)


CARD_COLUMNS = ("family", "year", "source")
COST_COLUMNS = ("time", "state", "path", "steps")
PART_COLUMNS = (*CARD_COLUMNS, "time", "about")
FIELD_COLUMNS = ("about", "fields")
SYSTEM_COLUMNS = ("task", "parameters")  # columns that only systems have
TASK_COLUMNS = ("systems", "data", "measures")  # columns that only tasks have
OF_SYSTEMS = ("task", "year", "source", "parameters", "about")
POSITIONS = ("system.positions", "system.decoder_attention.positions")
MECHANISM = "system.attention"
KINDS: Mapping[str, Kind] = {
    "mechanisms": Kind("attention", (MECHANISM,), (*CARD_COLUMNS, "capabilities", *COST_COLUMNS)),
    "mixers": Kind("mixers", ("system.decoder_attention",), (*CARD_COLUMNS, *COST_COLUMNS)),
    "scores": Kind("attention.scores", (f"{MECHANISM}.score",), PART_COLUMNS),
    "alignments": Kind("attention.alignments", (f"{MECHANISM}.alignment",), PART_COLUMNS),
    "positions": Kind("attention.positions", POSITIONS, PART_COLUMNS),
    "visibilities": Kind("attention.visibility", ("system.decoder_visibility",), PART_COLUMNS),
    "features": Kind("attention.features", (f"{MECHANISM}.features",), ("year", "source", "about")),
    "kernels": Kind("attention.kernels", (f"{MECHANISM}.kernel",), ("module", "about")),
    "norms": Kind("layers", ("system.normalisation",), FIELD_COLUMNS),
    "feed_forwards": Kind("layers", ("system.feed_forward",), FIELD_COLUMNS),
    "initializers": Kind("layers", ("system.initial",), FIELD_COLUMNS),
    "gates": Kind("layers.gates", ("system.gate",), PART_COLUMNS),
    "backbones": Kind("layers.backbones", ("system.backbone",), FIELD_COLUMNS),
    "cells": Kind("layers", ("system.cell",), ("about",)),
    "tasks": Kind("tasks", ("task",), (*TASK_COLUMNS, "about")),
    "systems": Kind("systems", ("system",), OF_SYSTEMS),
    "data": Kind("data", ("data",), table="SOURCES"),
    "optimizers": Kind("training.optimizers", ("optimizer",)),
    "schedules": Kind("training.optimizers", ("schedule",)),
}
FILES: Mapping[str, str] = {
    "configs": "--config=FILE.py:ARGUMENT",
    "experiments": "sweep FILE.py:ARGUMENT",
}
"""Folders of files, and the argument that names one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `list` to its parser: a kind and a name, both optional, and
    `--markdown`.
    """
    meaning = f"one of: {', '.join([*KINDS, *FILES])}; without it, the kinds"
    parser.add_argument("kind", nargs="?", metavar="KIND", help=meaning)
    meaning = "all about one of them, its fields too; or package.module:Attribute"
    parser.add_argument("name", nargs="?", metavar="NAME", help=meaning)
    meaning = "mechanisms and their parts as a page, docs/mechanisms.md"
    parser.add_argument("--markdown", action="store_true", help=meaning)


def run(arguments: argparse.Namespace) -> int:
    """Prints one component, or the table of one kind, or the table of all kinds (with `--markdown`
    the page on mechanisms); returns 0; raises `UserError` for an unknown name.
    """
    kind, name = arguments.kind, arguments.name
    if arguments.markdown:
        if kind is not None:
            raise UserError(f"list --markdown: writes the whole page, leave out {kind!r}")
        from attnlab.commands.catalogue import page

        print(page(), end="")
    elif kind is None:
        kinds = [(label, entry.use) for label, entry in KINDS.items()]
        title = "kinds ('list KIND' shows one, 'list KIND NAME' all about one of them)"
        table(title, ("kind", "how to choose one"), [*kinds, *FILES.items()])
    elif kind in FILES:
        if name is not None:
            raise UserError(f"list {kind}: takes no name")
        table(kind, ("file", "about"), file_rows(kind))
    elif kind not in KINDS:
        raise UserError(f"list: unknown kind {kind!r}; {nearest(kind, [*KINDS, *FILES])}")
    elif name is not None:
        print_component(kind, name)
    else:
        columns = KINDS[kind].columns
        details = "one" if kind == "tasks" else "fields"
        title = f"{kind} ({KINDS[kind].use}; 'list {kind} NAME' shows {details})"
        table(title, ("name", *columns), component_rows(components(kind), columns))
    return 0


def components(kind: str) -> Components:
    """Returns the table of components of a kind."""
    entry = KINDS[kind]
    return import_object(f"attnlab.{entry.room}:{entry.table or kind.upper()}", Table)


def component_rows(entries: Components, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns one row of a table per component: its name, then its texts for `columns`; a component
    that cannot be imported has the reason in its last cell.

    An entry that cannot be imported (an extra that is not installed) has the reason in its last
    cell.
    """
    rows = []
    for name in entries.names():
        try:
            cells = component_cells(name, entries.resolve(name), columns)
        except UserError as error:
            rows.append((name, *[""] * (len(columns) - 1), f"not available: {error}"))
            continue
        rows.append((name, *(cells[column] for column in columns)))
    return rows


def component_cells(
    name: str, component: Callable[..., object], columns: Sequence[str]
) -> dict[str, str]:
    """Returns the table cells of a component, texts by the name of the column (module, about,
    capabilities, fields, ...); those of systems and tasks, which take longer, only if `columns` has
    some of them.
    """
    fields = [f"{field.name}={field.default}" for field in settable_fields(component)]
    further_cells: dict[str, str] = {}
    if {*SYSTEM_COLUMNS, *TASK_COLUMNS} & {*columns}:
        from attnlab.commands import catalogue

        of_task = "measures" in columns
        further_cells = (
            catalogue.task_cells(component) if of_task else catalogue.system_cells(name, component)
        )
    return {
        "module": component.__module__,
        "about": summary(component),
        **card_cells(component),
        "capabilities": capability_names(getattr(component, "capabilities", None)),
        "fields": ", ".join(fields),
        **further_cells,
    }


def print_component(kind: str, name: str) -> None:
    """Prints all about one component: its cells, its fields (not for tasks, whose fields no config
    sets) and its formula; raises `UserError` for an unknown name.
    """
    component = components(kind).find(name)
    if not callable(component):  # any component with fields is shown, whether valid or not
        components(kind).check(component, name, f"{kind} {name!r}")
    cells = component_cells(name, component, KINDS[kind].columns)
    del cells["fields"]
    table(name, ("what", "it says"), [(column, text) for column, text in cells.items() if text])
    fields = [dataclasses.astuple(field) for field in settable_fields(component)]
    if fields and kind != "tasks":
        table("\nfields", ("field", "default", "meaning"), fields)
    if blocks := formula(component):
        print(f"\nformula\n\n{blocks}")


def file_rows(kind: str) -> list[tuple[str, str]]:
    """Returns (path, first paragraph of the docstring) for each Python file without a leading "_"
    in the folder `kind` of the current folder, or of attnlab's own if there is none here.

    They are not run.
    """
    root = next(
        (root for root in (pathlib.Path(), SHIPPED) if (root / kind).is_dir()), pathlib.Path()
    )
    files = sorted((root / kind).glob("*.py"))
    shown = [file for file in files if not file.name.startswith("_")]
    return [(str(file.relative_to(root)), _file_summary(file)) for file in shown]


def _file_summary(file: pathlib.Path) -> str:
    """Returns the first paragraph of a file's module docstring, or "not readable: ..." if it cannot
    be parsed.
    """
    try:
        return first_paragraph(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))))
    except (SyntaxError, ValueError, OSError) as error:
        return f"not readable: {error}"


_SWITCHES = ("padding", "dense", "dropout", "cache", "values", "unprojected", "own", "window")
"""Capabilities that a mechanism has or has not, in the order in which they are named."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field that a config may set: its name, the default as text ("<mechanism>" for a part that
    must be named), its meaning.
    """

    name: str
    default: str
    meaning: str


def card_cells(component: object) -> dict[str, str]:
    """Returns the fields of a component's card as texts, blank where it has none; raises
    `UserError` for one that cannot be read.
    """
    card = card_of(component)
    return {field.name: str(getattr(card, field.name, "")) for field in dataclasses.fields(Card)}


def summary(component: object) -> str:
    """Returns the first paragraph of a component's docstring, in one line."""
    return first_paragraph(inspect.getdoc(component))


def settable_fields(component: Callable[..., object]) -> list[Field]:
    """Returns a `Field` (name, default as text, meaning) for each argument of a component that a
    config may set; a part without a default has its kind, "<kind>", in place of it.
    """
    from attnlab.config.tree import defaults

    parts: Parts = getattr(component, "parts", {})
    values = defaults(component)
    meanings = field_meanings(component)
    settable = []
    for field in fields(component):
        value = values.get(field, inspect.Parameter.empty)
        if isinstance(value, Mapping):
            value = value.get("name", dict(value))
        if value is not inspect.Parameter.empty:
            settable.append(Field(field, str(value), meanings.get(field, "")))
        elif field in parts:
            settable.append(Field(field, f"<{parts[field].kind}>", meanings.get(field, "")))
    return settable


def field_meanings(component: object) -> dict[str, str]:
    """Returns the meaning of each field, by name, from the "Attributes:" sections in the docstrings
    of a class and its bases (the class itself first), or the "Args:" of those of a function and its
    module; {} without such a section.
    """
    meanings: dict[str, str] = {}
    function = (component, inspect.getmodule(component))
    for source in inspect.getmro(component) if inspect.isclass(component) else function:
        text = inspect.cleandoc(source.__doc__ or "") + "\n\nArgs:\n"
        attributes = re.split(r"\n(?:Attributes|Args):\n", text)[1].split("\n\n")[0]
        for names, meaning in re.findall(
            r"^  (\w+(?:, \w+)*): (.*(?:\n    .*)*)", attributes, re.MULTILINE
        ):
            for name in names.split(", "):
                meanings.setdefault(name, " ".join(meaning.split()))
    return meanings


def capability_names(capabilities: "Capabilities | None") -> str:
    """Returns the capabilities of a mechanism as text, separated by commas; "" for None."""
    if capabilities is None:
        return ""
    roles = sorted(capabilities.roles, reverse=True)
    directions = sorted(capabilities.directions, reverse=True)
    switches = [name for name in _SWITCHES if getattr(capabilities, name)]
    if not capabilities.grows:
        switches.append("causal only as a mixer")
    names = [*roles, *directions, *switches, f"maps {capabilities.maps}"]
    if capabilities.positions:
        names.append(f"positions {' '.join(sorted(capabilities.positions))}")
    if capabilities.max_length is not None:
        names.append(f"up to {capabilities.max_length} keys")
    return ", ".join(names)


def formula(component: object) -> str:
    """Returns the indented blocks (formulas) of the docstring of a class, of the module that defines
    it where the class has none; "" if neither has one or `component` is no class.
    """
    if not inspect.isclass(component):
        return ""
    of_class = inspect.cleandoc(component.__doc__ or "").partition("\nAttributes:\n")[0]
    for text in (of_class, inspect.getdoc(inspect.getmodule(component)) or ""):
        if blocks := re.findall(r"^    .*(?:\n    .*)*$", text, re.MULTILINE):
            return "\n\n".join(textwrap.dedent(block) for block in blocks)
    return ""


def memory_contents(mechanism: "type[Attention]") -> str:
    """Returns the first paragraph of the docstring of a mechanism's `memory_class`, or of the class
    that its `remember` returns; "" if it has no memory class of its own.
    """
    for memory in (mechanism.memory_class, typing.get_type_hints(mechanism.remember).get("return")):
        if inspect.isclass(memory) and len(inspect.getmro(memory)) > 2:
            return first_paragraph(memory.__doc__)
    return ""
