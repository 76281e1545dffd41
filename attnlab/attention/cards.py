"""What a component of attention declares about itself: its source and how it grows, a `Card`
(`layers/cards.py`). What it costs is not declared but counted in its program, see
`api/costs.py`. Axis letters on cards: T length (Tq queries, Tk keys), H heads, K key heads, D head
width, d width of the context, dq/ds widths of query and source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from attnlab.layers.cards import Card as Card


@dataclasses.dataclass(frozen=True)
class MixerCard(Card):
    """The card of a mixer; unless it says otherwise every token is read directly, and all are
    computed side by side.
    """

    path: str = "1"
    steps: str = "1"


Function = TypeVar("Function", bound=Callable[..., Any])


def carrying(card: Card) -> Callable[[Function], Function]:
    """A decorator that gives a component that is a function its card."""

    def decorate(function: Function) -> Function:
        function.card = card  # type: ignore[attr-defined]
        return function

    return decorate
