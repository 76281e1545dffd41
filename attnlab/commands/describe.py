"""What a component says of itself, as text: fields and what they mean, card, capabilities, formula,
what its memory keeps.

Everything is read off the code; a component of a user's own that declares no card is described with
blanks.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping
from typing import Any

from attnlab.config.registry import Table, fields


@dataclasses.dataclass(frozen=True)
class Field:
    """A field that a config may set: its name, the default as text ("<mechanism>" for a part that
    must be named), what it means.
    """

    name: str
    default: str
    meaning: str


@dataclasses.dataclass(frozen=True)
class Origin:
    """The cells of a card, blank where a component has none."""

    family: str = ""
    year: str = ""
    source: str = ""
    time: str = ""
    state: str = ""
    path: str = ""
    steps: str = ""


def origin(component: Any) -> Origin:
    """The card that a component carries itself; what a class inherits tells of its base."""
    card = vars(component).get("card")
    if card is None:
        return Origin()
    said = dataclasses.asdict(card)
    said["source"] = said.get("source", said.get("paper", ""))  # the card of a system has a paper
    return Origin(**{one.name: str(said.get(one.name, "")) for one in dataclasses.fields(Origin)})


def summary(text: str | None) -> str:
    """The first paragraph of a docstring as one line, or ""."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def about(component: Any) -> str:
    """What it is, in one line."""
    return summary(inspect.getdoc(component))


def settable(component: Callable[..., Any]) -> list[Field]:
    """The fields of a component that a config may set."""
    from attnlab.config.tree import defaults

    parts: Mapping[str, Table] = getattr(component, "parts", {})
    values, known = defaults(component), meanings(component)
    found = []
    for field in fields(component):
        value = values.get(field, inspect.Parameter.empty)
        if isinstance(value, Mapping):
            value = value.get("name", dict(value))
        if value is not inspect.Parameter.empty:
            found.append(Field(field, str(value), known.get(field, "")))
        elif field in parts:
            found.append(Field(field, f"<{parts[field].kind}>", known.get(field, "")))
    return found


def meanings(component: Any) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each field under "Attributes:"."""
    found: dict[str, str] = {}
    for base in inspect.getmro(component) if inspect.isclass(component) else ():
        listed = (
            (inspect.cleandoc(base.__doc__ or "")).partition("\nAttributes:\n")[2].split("\n\n")[0]
        )
        for names, meaning in re.findall(
            r"^  (\w+(?:, \w+)*): (.*(?:\n    .*)*)", listed, re.MULTILINE
        ):
            for name in names.split(", "):
                found.setdefault(name, " ".join(meaning.split()))
    return found


def can(capabilities: Any) -> str:
    """What a mechanism can be asked for, in words; "" for what declares nothing."""
    if capabilities is None:
        return ""
    roles = [
        *sorted(capabilities.roles, reverse=True),
        *sorted(capabilities.directions, reverse=True),
    ]
    switches = [
        name
        for name in (
            "padding",
            "dense",
            "dropout",
            "cache",
            "values",
            "unprojected",
            "own",
            "window",
        )
        if getattr(capabilities, name)
    ]
    if not capabilities.grows:
        switches.append("causal only as a mixer")
    words = [*roles, *switches, f"maps {capabilities.maps}"]
    if capabilities.positions:
        words.append(f"positions {' '.join(sorted(capabilities.positions))}")
    if capabilities.max_length is not None:
        words.append(f"up to {capabilities.max_length} keys")
    return ", ".join(words)


def formula(component: Any) -> str:
    """The indented blocks of the docstring of the module a class stands in, or ""."""
    module = inspect.getmodule(component) if inspect.isclass(component) else None
    blocks = re.findall(
        r"^    .*(?:\n    .*)*$",
        inspect.cleandoc((module.__doc__ if module else "") or ""),
        re.MULTILINE,
    )
    return "\n\n".join(textwrap.dedent(block) for block in blocks)


def kept(mechanism: Any) -> str:
    """The contents of the memory of a mechanism, from the docstring of its `memory_class`, or of the
    class that its `remember` (or `remember_pairs`) returns; "" if it has no class of its own.
    """
    verbs = (mechanism.remember, mechanism.remember_pairs)
    returned = (typing.get_type_hints(verb).get("return") for verb in verbs)
    for memory in (mechanism.memory_class, *returned):
        if inspect.isclass(memory) and len(inspect.getmro(memory)) > 2:
            return summary(inspect.cleandoc(memory.__doc__ or ""))
    return ""
