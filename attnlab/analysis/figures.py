"""Figures that are drawn off screen and written as PNG, SVG or PDF, by the ending of the path: those
of numbers (curves of losses over steps or accuracies over distances, heads by layer, costs of
heads), and an image under weights. Figures of maps over tokens are in `attnlab.analysis.maps`.

Equal figures give equal bytes, and a file is written whole or not at all. A PDF has its fonts
inside, so that its text can be searched and copied: as TrueType (type 42), or as outlines (type 3)
if one of them has the outlines of PostScript, as Noto Sans CJK has, which some viewers do not draw
as type 42. An SVG has its text as outlines, since a reader may not have the fonts; the words stand
beside them as comments.

Where a system looks in an image is drawn as the image, and beside it the image in grey under the
weights, a panel for each row that looks. The colours of a panel go from 0 to its largest number,
which is written above it: a small weight everywhere and a large one somewhere are both seen. Axis
letters: H and W of the image, C channels, R rows that look, h and w of the grid of weights.
"""

import io
import itertools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.analysis.heads import Record
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


def save_curve(
    path: File,
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str = "",
    x_label: str = "step",
    y_label: str = "loss",
    bars: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    doubling: bool = False,
    width: float = 6.4,
) -> None:
    """Draws curves into the picture `path` (.png, .svg or .pdf): `series` maps a name to its (x, y)
    points, in order, `bars` a name to intervals (low, high) at these points; `doubling` makes the x
    axis logarithmic. A series without points is only in the legend.

    Args:
      bars: name to the lower and the upper end of a bar at each of its points.
      doubling: whether each doubling of x is equally wide, with the points' own x as ticks.
      width: of the picture in inches.
    """
    figure = figure_of(width, 0.8 + 0.5 * width, paper=width < 6)
    add_title(figure, title)
    axes = add_panel(figure, 0.65, 0.35, width - 0.8, 0.5 * width)
    for name, points in series.items():
        x, y = (np.array([point[i] for point in points], dtype=float) for i in (0, 1))
        (line,) = axes.plot(
            x,
            y,
            marker="o" if len(x) < 20 else None,
            markersize=3,
            linewidth=1.2,
            label=label(name, longest=60).lstrip("_"),
        )
        if bars and len(x):
            low, high = np.array(bars[name], dtype=float).T
            axes.vlines(x, low, high, colors=line.get_color(), alpha=0.5)
    axes.locator_params(axis="x", integer=True)  # there is no step 2.5
    if doubling:
        ticks = sorted({point[0] for points in series.values() for point in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(label(x_label, longest=60), **text_style(9, x_label))
    axes.set_ylabel(label(y_label, longest=60), **text_style(9, y_label))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    if series:
        for text in axes.legend(fontsize=8, frameon=False).get_texts():
            text.set(**text_style(8, text.get_text()))
    save_figure(figure, path)


def save_by_layer(
    path: File, records: Sequence[Record], column: str, title: str = "", width: float = 6.4
) -> None:
    """Draws the number in `column` of the records of heads by layer into the picture `path`: a dot
    for each record, with its interval if any, and a line at the mean of a layer; raises
    `ValueError` if no record has a number.

    Args:
      path: ends in .png, .svg or .pdf.
      records: of `HeadStatistics.records`, with a layer in the column "map", or costs
        (`Cost._asdict()`) with one in "place" and an "interval". NaN is left out.
      column: the number, such as "entropy" or "cost".
      title: stands above.
      width: of the picture in inches.

    Raises:
      ValueError: no record has a number in this column.
      UserError: the path ends in something else.
    """
    records = [record for record in records if np.isfinite(record[column])]
    if not records:
        raise ValueError(f"no record has a number in the column {column!r}")
    by = "map" if "map" in records[0] else "place"
    layers = list(dict.fromkeys(record[by] for record in records))
    names = [label(name, room=0.3 * width) for name in layers]
    figure = figure_of(width, 0.45 + 0.45 * width + extent(*names)[0], paper=width < 6)
    add_title(figure, title)
    panel = add_panel(figure, 0.6, 0.35, width - 0.7, 0.45 * width)
    for place, layer in enumerate(layers):
        heads = [record for record in records if record[by] == layer]
        x = place + np.linspace(-0.25, 0.25, len(heads) + 2)[1:-1]
        y = np.array([record[column] for record in heads])
        ends = np.array([head.get("interval", 2 * [head[column]]) for head in heads]).T
        panel.vlines(x, *ends, alpha=0.5)
        panel.hlines(y.mean(), place - 0.35, place + 0.35, colors="0.4", linewidths=1)
        panel.scatter(x, y, 9, "C0", zorder=3)
    panel.set_xlim(-0.5, len(layers) - 0.5)
    panel.tick_params(labelsize=7)
    set_labels(panel.xaxis, names, (width - 0.7) / len(layers))
    panel.set_ylabel(label(column), **text_style(8, column))
    panel.grid(alpha=0.3, axis="y")
    save_figure(figure, path)


def save_costs(
    path: File, costs: Sequence[Record], kind: str = "zero", title: str = "", cell: float = 0.55
) -> None:
    """Draws what the ablation `kind` of each layer and head costs into the picture `path`, as a heat
    map with a row for each layer and a column for each head, and one for the whole layer; raises
    `ValueError` if no record is of this kind.

    Colours go from minus (red, better without it) to plus (blue, worse without it) the largest cost
    of a head; the number in a cell is the cost, with 4 decimals at most, and an infinite one is left
    out. A whole layer may cost more than the scale has.

    Args:
      path: ends in .png, .svg or .pdf.
      costs: records with "place", "head" (None for the whole layer), "kind" and "cost", such as
        `attnlab.analysis.inside.Analysis.costs`.
      kind: of `attnlab.analysis.ablation.ABLATIONS`.
      title: stands above.
      cell: the width of a cell in inches.

    Raises:
      ValueError: no record is of this kind.
      UserError: the path ends in something else.
    """
    cells = {
        (cost["place"].rpartition("/")[0], cost["head"]): cost["cost"]
        for cost in costs
        if cost["kind"] == kind
    }
    if not cells:
        raise ValueError(f"no record is of the kind {kind!r}")
    layers = list(dict.fromkeys(layer for layer, _ in cells))
    heads = [*range(1 + max((head for _, head in cells if head is not None), default=-1)), None]
    table = np.array([[cells.get((layer, head), np.nan) for head in heads] for layer in layers])
    table[~np.isfinite(table)] = np.nan
    largest = np.nanmax(np.abs(table if len(heads) == 1 else table[:, :-1]), initial=1e-12)
    digits = min(4, max(0, 1 - math.floor(math.log10(largest))))
    names, high = [label(layer) for layer in layers], 0.6 * cell
    left = 0.2 + extent(*names)[0]
    width = max(3.5, left + cell * len(heads) + 0.15)
    figure = figure_of(width, 0.8 + high * len(layers))
    add_title(figure, title)
    panel = add_panel(figure, left, 0.6, cell * len(heads), high * len(layers))
    panel.imshow(table, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    for row, column in np.argwhere(np.isfinite(table)):
        cost = table[row, column]
        colour = "white" if abs(cost) > 0.6 * largest else "black"
        number = f"{round(cost, digits) + 0:.{digits}f}"  # 0 has no sign
        panel.text(column, row, number, ha="center", va="center", color=colour, fontsize=7)
    panel.xaxis.tick_top()
    panel.tick_params(length=2, pad=1.5)
    marks = ["layer" if head is None else str(head) for head in heads]
    set_labels(panel.xaxis, marks, cell, turned=False)
    set_labels(panel.yaxis, names, high)
    save_figure(figure, path)


PANELS = 24  # rows that are drawn; further ones are only in the arrays
_ACROSS = 6
_SIDE = 1.5  # inches
_ROOM = 0.3  # inches above a panel, for its name


def save_overlay(
    path: File, image: np.ndarray, weights: np.ndarray, rows: Sequence[str], title: str = ""
) -> None:
    """Draws into the picture `path` (.png, .svg or .pdf) an image [H,W,C] and, beside it, the image
    in grey under each of the first `PANELS` maps of `weights` [R,h,w] with its name in `rows`;
    raises `ValueError` if shapes do not fit or there is no map.

    Args:
      image: [H,W,C] uint8, C 1 or 3.
      weights: [R,h,w], 0 or more; each covers an equal part of the image.
      rows: the names of the R rows.

    Raises:
      ValueError: the shapes do not fit, or there is nothing to draw.
    """
    weights = np.asarray(weights, np.float64)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"an image {list(image.shape)}: expected [H,W,1] or [H,W,3]")
    if weights.ndim != 3 or not weights.size or len(weights) != len(rows):
        raise ValueError(f"weights {list(weights.shape)} for {len(rows)} rows: expected [R,h,w]")
    drawn = min(len(rows), PANELS)
    across = min(drawn + 1, _ACROSS)
    down = math.ceil((drawn + 1) / across)
    figure = figure_of(0.1 + across * (_SIDE + 0.1), 0.3 + down * (_SIDE + _ROOM))
    add_title(figure, title)
    grey = image.mean(axis=-1) / 255
    extent = (0.0, float(image.shape[1]), float(image.shape[0]), 0.0)
    for number in range(drawn + 1):
        row, column = divmod(number, across)
        left, top = 0.1 + column * (_SIDE + 0.1), 0.3 + row * (_SIDE + _ROOM) + _ROOM
        panel = add_panel(figure, left, top, _SIDE, _SIDE)
        panel.set_axis_off()
        if number == 0:
            panel.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray")
            continue
        values = np.where(np.isfinite(weights[number - 1]), weights[number - 1], 0.0)
        most = float(values.max())
        panel.imshow(grey, cmap="gray", vmin=0, vmax=1, extent=extent)
        panel.imshow(values, cmap="inferno", vmin=0, vmax=most or 1.0, alpha=0.6, extent=extent)
        name = label(rows[number - 1], longest=14)
        panel.set_title(f"{name}  {most:.2f}", pad=2, **text_style(8, name))
    save_figure(figure, path)
