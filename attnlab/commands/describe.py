"""Components described as text: fields and their meanings, card, capabilities, formula, contents of
the memory.

Everything is read from the code; a component of a user's own that declares no card is described
with blanks.
"""

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping

from attnlab.config.registry import Parts, fields
from attnlab.config.schema import first_paragraph
from attnlab.layers.cards import Card, card_of

if typing.TYPE_CHECKING:
    from attnlab.attention.mixer import Capabilities
    from attnlab.attention.protocol import Attention


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
