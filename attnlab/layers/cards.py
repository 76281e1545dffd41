"""What a component declares about itself: where it comes from and how it grows. What it costs is not
declared but counted in its program, see `api/costs.py`.

Letters on the cards of attention: T length (Tq queries, Tk keys), H heads, K key heads, D head width,
d width of the context, dq/ds widths of query and source. Those of gates stand in `gates/protocol.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar


@dataclasses.dataclass(frozen=True)
class Card:
    """Where a component comes from, and how it grows; the attribute `card` of every registered
    component.

    Attributes:
      family: its family, in one or two words.
      year: of the source.
      source: authors, short title, where it appeared.
      time: operations as a sum of products of letters ("T^2 d + T d^2"; T for Tq = Tk, D of one
        head), others named in the component's docstring; "" where there is nothing to say.
      state: how many numbers are kept for a sequence of T tokens, in the same form.
      path: of a mixer, over how many positions what one token says reaches another, at most: "1"
        where every token is read directly, "T" where it goes from token to token, "T / w" in
        layers of a window w (Vaswani et al. 2017, table 1).
      steps: of a mixer, how many of its operations must follow one another for a text of T tokens,
        in the same form; "1" if all tokens are computed side by side.
    """

    family: str
    year: int
    source: str
    time: str = ""
    state: str = ""
    path: str = ""
    steps: str = ""


@dataclasses.dataclass(frozen=True)
class MixerCard(Card):
    """The card of a mixer; unless it says otherwise every token is read directly, and all are
    computed side by side.
    """

    path: str = "1"
    steps: str = "1"


Function = TypeVar("Function", bound=Callable[..., Any])


def carrying(card: Card) -> Callable[[Function], Function]:
    """Returns a decorator that sets a function's attribute `card` and returns the function."""

    def decorate(function: Function) -> Function:
        function.card = card  # type: ignore[attr-defined]
        return function

    return decorate
