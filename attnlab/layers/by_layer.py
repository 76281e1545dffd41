"""Parts that differ from layer to layer: in a field of a stack that takes a mixer or a visibility,
`by_layer` stands for one part of two in each layer.

    attention  = {"name": "by_layer", "one": {"name": "multihead", ...}, "other": {"name": "recurrent", ...},
                  "pattern": ("other", "other", "one")}                        softmax attention in every third layer
    visibility = {"name": "by_layer", "one": "full", "other": {"name": "window", "width": 64},
                  "pattern": ("other", "other", "one")}                        [window, window, full]

The pattern repeats from the first layer on. For three kinds of layers one of the two is a
`by_layer` again, whose pattern counts all layers too. A position scheme inside attention differs as
its mixer does. A layer without a mixer has the mixer "none".
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from attnlab.config.registry import Part, behind
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class ByLayer:
    """One of two parts in each layer; a pattern says which.

    Attributes:
      one, other: the parts.
      pattern: which of them the layers have, from the first on; it repeats.
    """

    one: Part
    other: Part
    pattern: tuple[Literal["one", "other"], ...] = ("one", "other")

    def __post_init__(self) -> None:
        raise UserError(
            "by_layer stands for the parts of layers, so only in a field of a system that has one"
            " for each layer; name one part here"
        )


def varies(part: Any) -> bool:
    """Returns whether a factory stands for different parts in different layers."""
    component = behind(part)
    return isinstance(component, type) and issubclass(component, ByLayer)


def chosen(part: Any, layer: int) -> tuple[Any, str]:
    """Returns the factory that `part`, a factory or a `by_layer` pattern of two factories, gives to
    layer number `layer`, and its dotted path below `part` (".one"; "" without a pattern); raises
    `UserError` for an invalid pattern.

    Raises:
      UserError: a pattern that is empty, or names something else.
    """
    where = ""
    while varies(part):
        pattern = part.keywords.get("pattern", ByLayer.pattern)
        if not pattern or not set(pattern) <= {"one", "other"}:
            raise UserError(
                f"by_layer: pattern={tuple(pattern)!r}: a pattern names the part, 'one' or 'other',"
                " of at least one layer"
            )
        name = pattern[layer % len(pattern)]
        part, where = part.keywords[name], f"{where}.{name}"
    return part, where


def of_layer(part: Callable[..., Any], layer: int) -> Callable[..., Any]:
    """Returns the factory that `part` stands for in a layer, counted from 0."""
    factory: Callable[..., Any] = chosen(part, layer)[0]
    return factory
