"""Cards: where a component comes from and how it grows. What it costs is not declared but counted in
its program, see `api/costs.py`.

The card of a class or function is the paragraph "Card:" of its docstring:

    Card: family; authors, short title, where and when; time T^2 d; state T d; path 1; steps T / C.

The first year in the source is that of the card. Of a system there is a source only; of others any
of time, state, path and steps may be left out.

Letters on the cards of attention: T length (Tq queries, Tk keys), H heads, K key heads, D head width,
d width of the context, dq/ds widths of query and source. Those of gates stand in `gates/protocol.py`.
"""

import dataclasses
import inspect
import re

from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class Card:
    """Where a component comes from, and how it grows. A class of a user's own may have one as its
    attribute `card`, in place of the paragraph in its docstring.

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


_GROWTH = ("time", "state", "path", "steps")
_FORM = re.compile(
    r"(?:(?P<family>[^;\d]+); )?"
    rf"(?P<source>[^;]*?\b(?P<year>(?:19|20)\d\d)\b(?:(?!; (?:{'|'.join(_GROWTH)}) ).)*?)"
    + "".join(rf"(?:; {field} (?P<{field}>[^;]*?[^;.]))?" for field in _GROWTH)
    + r"\.?"
)


def card_of(component: object) -> Card | None:
    """Returns the `Card` of a component (a class), from its attribute `card` or the paragraph
    "Card" of its docstring, or None if it has neither, even if its base class has one; raises
    `UserError` if the paragraph cannot be read.
    """
    card = vars(component).get("card")
    if card is not None:
        return Card("", card.year, card.paper) if hasattr(card, "paper") else card
    text = inspect.cleandoc(component.__doc__ or "")
    paragraph = re.search(r"^Card: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if paragraph is None:
        return None
    written = " ".join(paragraph[1].split())
    match = _FORM.fullmatch(written)
    if match is None:
        raise UserError(
            f"card of {getattr(component, '__name__', component)}: cannot read {written!r}; write"
            " 'Card: family; authors, title, year; time T^2 d; state T d.'"
        )
    cells = match.groupdict("")
    return Card(**cells | {"year": int(cells["year"])})  # type: ignore[arg-type]
