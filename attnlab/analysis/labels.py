"""The labels of pictures: which characters the fonts of this machine can draw, and how wide a label
is.
"""

from __future__ import annotations

import functools
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

_FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
    "Segoe UI Symbol",
)
_LONGEST = 24  # characters of a token that are shown
FONT_SIZE = 7.5  # points


def label(token: str, longest: int = _LONGEST) -> str:
    """Returns a token as text for a picture: blanks made visible, characters without a font as
    escapes, long tokens cut with "…".
    """
    if not token.strip(" "):
        return "\N{OPEN BOX}" * min(len(token), longest)
    text = "".join(
        sign if sign.isprintable() and _has_glyph(sign) else sign.encode("unicode_escape").decode()
        for sign in token
    )
    return text if len(text) <= longest else text[: longest - 1] + "…"


def inches(text: str) -> float:
    """Estimates the width of a label in inches as drawn: a wide character is one em, an upper-case
    one 0.8, the others 0.65.
    """
    wide = sum(unicodedata.east_asian_width(sign) in "WF" or sign in "mwMW@%…" for sign in text)
    upper = sum(sign.isupper() and sign not in "MW" for sign in text)
    return FONT_SIZE / 72 * (wide + 0.8 * upper + 0.65 * (len(text) - wide - upper))


@functools.cache
def fonts() -> dict[str, FT2Font]:
    """Returns the fonts of `_FONTS` that are installed on this machine, by family; the first comes
    with matplotlib.
    """
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return {
        name: font_manager.get_font(font_manager.findfont(name))
        for name in _FONTS
        if name in installed
    }


def _has_glyph(sign: str) -> bool:
    """True when one of the fonts can draw the character."""
    return any(font.get_char_index(ord(sign)) for font in fonts().values())
