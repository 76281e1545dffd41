"""Figures that are drawn off screen and written as PNG, SVG or PDF, by the ending of the path.

Equal figures give equal bytes, and a file is written whole or not at all. A PDF has its fonts
inside, so that its text can be searched and copied: as TrueType (type 42), or as outlines (type 3)
if one of them has the outlines of PostScript, as Noto Sans CJK has, which some viewers do not draw
as type 42. An SVG has its text as outlines, since a reader may not have the fonts; the words stand
beside them as comments.
"""

import io
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnlab.analysis.labels import FONT_SIZE, extent, fonts_for, is_truetype, label
from attnlab.errors import UserError
from attnlab.records.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

File = str | os.PathLike[str]
_DPI, _PAPER_DPI = 110, 300
_DATED = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}  # what would change the bytes


def figure_of(width: float, height: float, paper: bool = False) -> "Figure":
    """Returns an empty matplotlib figure of this size in inches, without pyplot and its global
    state; as PNG it has 110 dots an inch, or 300 for `paper`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_PAPER_DPI if paper else _DPI)
    FigureCanvasAgg(figure)
    return figure


def add_title(figure: "Figure", title: str) -> None:
    """Writes a title at the top of a figure, cut to its width."""
    width, height = figure.get_size_inches()
    text = label(title, longest=200, room=0.75 * (width - 0.1))
    figure.text(0.5, 1 - 0.08 / height, text, ha="center", va="top", **text_style(10, text))


def add_panel(figure: "Figure", left: float, top: float, width: float, height: float) -> Any:
    """Adds axes at these inches from the left and the top of a figure, and returns them."""
    wide, high = figure.get_size_inches()
    return figure.add_axes((left / wide, 1 - (top + height) / high, width / wide, height / high))


def text_style(size: float, *texts: str) -> dict[str, Any]:
    """Returns arguments with which matplotlib draws `texts` of data at this size in points: in
    fonts that have every character, and never as formulas.
    """
    return {"fontsize": size, "fontfamily": fonts_for("".join(texts)), "parse_math": False}


def set_labels(axis: Any, labels: Sequence[str], room: float, turned: bool = True) -> None:
    """Writes `labels` at the positions 0, 1, ... of a matplotlib axis, or only at every second,
    third, ... where they would touch; `room` is inches between positions, `turned` puts labels
    across the axis.

    Args:
      axis: of a matplotlib panel.
      labels: of all places.
      room: inches from one place to the next.
      turned: whether labels stand across the axis, as those of rows do; else along it.
    """
    sizes = [extent(text)[turned] + (0.0 if turned else 0.03) for text in labels]
    step = 1
    while any(a + b > 2 * step * room for a, b in itertools.pairwise(sizes[::step])):
        step += 1
    axis.set_ticks(range(0, len(labels), step), labels[::step], **text_style(FONT_SIZE, *labels))
    axis.set_tick_params(rotation=90 * (turned and axis.axis_name == "x"))


def save_figure(figure: "Figure", path: File) -> None:
    """Writes a figure to a path that ends in .png, .svg or .pdf; makes the folder if absent.

    Raises:
      UserError: the path ends in something else.
    """
    kind = pathlib.Path(path).suffix[1:].lower()
    if kind not in _DATED:
        raise UserError(f"{os.fspath(path)}: a picture is written as .png, .svg or .pdf")
    write_file(path, figure_bytes(figure, kind))


def write_file(path: File, data: bytes) -> None:
    """Writes a file whole or not at all; makes its folder if absent."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(pathlib.Path(path), data)


def figure_bytes(figure: "Figure", kind: str = "png") -> bytes:
    """Returns a figure as the bytes of a file of this kind: "png", "svg" or "pdf". A PNG has a
    palette of 256 colours, which makes it a third as large.
    """
    import matplotlib
    from matplotlib.text import Text
    from PIL import Image

    drawn, buffer = io.BytesIO(), io.BytesIO()
    fonts = 42 if is_truetype("".join(text.get_text() for text in figure.findobj(Text))) else 3
    settings: Any = {"pdf.fonttype": fonts, "svg.fonttype": "path", "svg.hashsalt": "attnlab"}
    with matplotlib.rc_context(settings):
        dpi = figure.dpi if kind == "png" else _PAPER_DPI
        figure.savefig(drawn, format=kind, dpi=dpi, metadata={_DATED[kind]: None})
    if kind != "png":
        return drawn.getvalue()
    picture = Image.open(drawn).convert("RGB")
    picture = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(buffer, format="png", optimize=True)
    return buffer.getvalue()
