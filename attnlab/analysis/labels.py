"""The labels of pictures: which fonts can draw a text, and how large it is.

matplotlib shapes texts (joined letters of Arabic, clusters of Devanagari) and orders them from
right to left where their script is written so. Here the fonts are chosen: a few families of the
system, then "Noto Sans <script>", of the system or of the extra `attnlab[fonts]`. A script that
none of them has is named in a line on stderr, and its characters are drawn as escapes.
"""

import functools
import importlib.util
import math
import unicodedata
from pathlib import Path

from attnlab.errors import note

_NOTO = ("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei")
_OTHERS = ("Arial Unicode MS", "PingFang SC", "Microsoft YaHei", "Nirmala UI", "Segoe UI Symbol")
_FONTS = ("DejaVu Sans", *_NOTO, *_OTHERS)  # the first comes with matplotlib
_EXTRA = ("manimgx_fonts", "noto_cjk_sans_otc")  # packages of the extra [fonts]
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")
_LONGEST = 24  # characters of a token that are shown
FONT_SIZE = 7.5  # points


def label(token: str, longest: int = _LONGEST, room: float = math.inf) -> str:
    """Returns a token as text for a picture: a token of blanks alone as open boxes, characters that
    no font has as escapes, cut with "…" to `longest` characters and to `room` inches at
    `FONT_SIZE`.
    """
    if not token.strip(" "):
        return "\N{OPEN BOX}" * min(len(token), longest)
    text = "".join(
        sign if sign.isprintable() and _font_of(sign) else sign.encode("unicode_escape").decode()
        for sign in token
    )
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    while len(text) > 1 and room < extent(text)[0]:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def extent(*labels: str) -> tuple[float, float]:
    """Measures the width of the widest and the height of the tallest label, in inches at
    `FONT_SIZE`; none is less tall than a line of Latin letters.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    sizes = [(0.0, 1.02 * FONT_SIZE)]
    for text in labels:
        font = FontProperties(family=fonts_for(text), size=FONT_SIZE)
        sizes.append(text_to_path.get_text_width_height_descent(text, font, False)[:2])
    width, height = map(max, zip(*sizes, strict=True))
    return width / 72, height / 72 + 0.01


def fonts_for(text: str) -> list[str]:
    """Returns the families that draw a text, in the order in which they are tried for a character."""
    return list(dict.fromkeys([_FONTS[0], *filter(None, map(_font_of, sorted(set(text))))]))


def is_truetype(text: str) -> bool:
    """Returns whether all fonts that draw a text have outlines of TrueType, and none of PostScript."""
    from matplotlib.font_manager import findfont, get_font

    tables = [get_font(findfont(family)).get_sfnt_table("maxp") for family in fonts_for(text)]
    return all(table is not None and table["version"] == (1, 0) for table in tables)


@functools.cache
def _font_of(sign: str) -> str:
    """Returns the first font family that has the character `sign`, "" if none has (with a note to
    the user if it is a letter).
    """
    from matplotlib.font_manager import findfont, get_font

    first = unicodedata.name(sign, "").partition(" ")[0]
    script = "CJK" if first in _CJK else first.title()  # as the Noto fonts call it
    for family in (*_FONTS, f"Noto Sans {script}"):
        if family in _installed() and get_font(findfont(family)).get_char_index(ord(sign)):
            return family
    if unicodedata.category(sign)[0] in "LM":
        note(f"no font for {script}: pip install 'attnlab[fonts]', or install Noto Sans {script}")
    return ""


@functools.cache
def _installed() -> frozenset[str]:
    """Returns the names of all font families that matplotlib can use, after it has registered the
    Noto Sans fonts that are installed on the system or with the extra of this package.
    """
    from matplotlib import font_manager

    specs = filter(None, map(importlib.util.find_spec, _EXTRA))
    folders = [str(Path(spec.origin).parent) for spec in specs if spec.origin]
    files = font_manager.findSystemFonts() + (folders and font_manager.findSystemFonts(folders))
    new = set(files) - {entry.fname for entry in font_manager.fontManager.ttflist}
    for file in sorted(file for file in new if Path(file).name.startswith("NotoSans")):
        font_manager.fontManager.addfont(file)
    return frozenset(font_manager.get_font_names())
