"""Pictures and arrays of attention: weights [H,Tq,Tk] with a label for every row and column, and
curves over steps.

Rows are queries, columns are keys: for a translator target and source tokens, as in figure 3 of
Bahdanau et al. (2015). All pictures of weights have the same colours, 0 to 1. A map with weights
below 0 (differential attention and talking heads can have them) has colours from -1 to 1 with white
for 0. Axis letters: H heads, Tq queries, Tk keys. Everything is drawn off screen, and every file is
written whole or not at all.
"""

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.analysis import figures
from attnlab.analysis.alignment import Gold
from attnlab.analysis.figures import File, add_panel, add_title, figure_of, save_figure, set_labels
from attnlab.analysis.labels import extent, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = 0.17  # inches per token, so that labels do not touch
_FAINT = 0.05  # arcs with less weight are not drawn
_LABEL = 0.22  # the part of a given width that a label may take
_BAR = 0.8  # inches for the colour bar
_DUST = 1e-6  # a weight less than this below 0 is 0, rounded


def save_map(
    path: File,
    weights: np.ndarray,
    columns: Sequence[str],
    rows: Sequence[str],
    title: str = "",
    width: float | None = None,
    gold: Gold | None = None,
) -> None:
    """Draws attention weights as a picture (.png, .svg or .pdf), one panel per head in a grid.

    Colours go from 0 to 1, or from -1 (red) to 1 (blue) if a weight is below 0. Values beyond the
    range get the colour of its end, and the colour bar gets a tip. NaN is red, or black if red is a
    colour of the range.

    Args:
      path: ends in .png, .svg or .pdf.
      weights: [H,Tq,Tk] or [Tq,Tk].
      columns: the labels of the Tk columns.
      rows: the labels of the Tq rows.
      title: stands above.
      width: of the picture in inches, such as 3.3 for a column of a paper: labels are cut, and
        where they would touch every n-th is written. None for as wide as all labels need.
      gold: links (column, row) to draw over the weights: a square for a sure one, a circle for a
        merely possible one.

    Raises:
      ValueError: the shape does not fit the labels, a link leads to no label, or there is nothing
        to draw.
      UserError: the path ends in something else.
    """
    save_figure(_map_figure(weights, columns, rows, title, width, gold), path)


def as_shares(name: str, weights: np.ndarray, kind: str) -> tuple[np.ndarray, str]:
    """Returns what is drawn of a map, and its title with the kind: exact weights as they are, other
    numbers divided by the largest, which the title gives.
    """
    if kind == "exact":
        return weights, f"{name}: {kind}"
    largest = float(np.abs(weights).max(initial=0.0))
    return weights / (largest or 1.0), f"{name}: {kind}, 1 is {largest:.2g}"


def map_png(
    weights: np.ndarray, columns: Sequence[str], rows: Sequence[str], title: str = ""
) -> bytes:
    """Draws attention weights as `save_map` does and returns the PNG."""
    return figures.figure_bytes(_map_figure(weights, columns, rows, title))


def _map_figure(
    weights: np.ndarray,
    columns: Sequence[str],
    rows: Sequence[str],
    title: str,
    width: float | None = None,
    gold: Gold | None = None,
) -> "Figure":
    """Returns a figure of weights [H,Tq,Tk] as coloured cells, a panel for each head, with
    `columns` as labels of keys and `rows` of queries, gold links drawn over them if given; `width`
    is in inches. The layout is computed here, since matplotlib's layout engines need 10 s for eight
    heads of 60 tokens.
    """
    maps, room = _checked(weights, columns, rows), (width or math.inf) * _LABEL
    sources, targets = ([label(name, room=room) for name in names] for names in (columns, rows))
    (left, tall), (top, flat) = extent(*targets), extent(*sources)
    left, top = left + 0.15, top + (0.45 if len(maps) > 1 else 0.15)
    cell = max(_CELL, 1.2 / max(len(targets), len(sources)), tall, flat)
    across, cell = _layout(maps.shape, left, top, cell, width)
    size = cell * len(sources), cell * len(targets)
    right, down = left + size[0], top + size[1]
    high = 0.5 + math.ceil(len(maps) / across) * down + (0.3 if gold else 0)
    figure = figure_of(width or max(3.5, across * right + _BAR), high, paper=width is not None)
    add_title(figure, title)
    for head in range(len(maps)):
        row, column = divmod(head, across)
        panel = add_panel(figure, column * right + left, 0.35 + row * down + top, *size)
        image = _draw(panel, maps[head], signed=_signed(maps))
        set_labels(panel.xaxis, sources, cell)
        set_labels(panel.yaxis, targets, cell)
        if len(maps) > 1:
            panel.set_title(f"head {head}", fontsize=8, pad=0, y=1 + (top - 0.28) / size[1])
        if gold:
            _draw_links(panel, gold, cell)
    bar_panel = add_panel(figure, across * right + 0.2, 0.35 + top, 0.12, min(2.5, size[1]))
    bar = figure.colorbar(image, cax=bar_panel, extend=_tips(maps))
    bar.ax.tick_params(labelsize=7)
    bar.set_label("weight, below 0 red" if _signed(maps) else "weight", fontsize=7)
    if gold:
        figure.legend(handles=panel.collections[::2], loc="lower center", ncols=2, fontsize=7)
    return figure


def _layout(
    shape: tuple[int, ...], left: float, top: float, cell: float, width: float | None
) -> tuple[int, float]:
    """Returns how many of H panels of Tq x Tk cells (`shape`) stand side by side, in a grid about
    as wide as high or in the given `width`, and the inches of a cell; `left` and `top` are inches
    for labels.

    Args:
      shape: [H,Tq,Tk].
      left, top: inches for the labels beside and above each panel.
      cell: inches that a cell needs for its labels.
      width: of the picture; None if it may be as wide as it needs.
    """
    heads, rows, columns = shape
    if width is None:
        part = (cell * rows + top) / (cell * columns + left)
        return min(heads, max(1, round(math.sqrt(heads * part)))), cell
    across = min(heads, max(1, int((width - _BAR) / (left + 1.0))))
    most = ((width - _BAR) / across - left) / columns
    return across, min(max(cell, 0.3), most, 8 / rows)


def _draw_links(panel: Any, gold: Gold, cell: float) -> None:
    """Draws gold links into a matplotlib panel with cells `cell` inches wide, sure ones as squares
    and possible ones as circles; raises `ValueError` for a link outside of the map.
    """
    rows, columns = panel.images[0].get_size()
    if beyond := [(i, j) for i, j in gold.possible if i >= columns or j >= rows]:
        raise ValueError(f"link {min(beyond)} in a map of {columns} columns and {rows} rows")
    rest = gold.possible - gold.sure
    for marker, name, links in (("s", "sure", gold.sure), ("o", "possible", rest)):
        x, y = np.array(sorted(links), float).reshape(-1, 2).T
        for colour, stroke in (("black", 2.2), ("white", 1.0)):
            style = {"facecolors": "none", "edgecolors": colour, "linewidths": stroke}
            panel.scatter(x, y, (50 * cell) ** 2, marker=marker, label=name, **style)


def save_head_grid(
    path: File, maps: Mapping[str, np.ndarray], title: str = "", width: float | None = None
) -> None:
    """Draws all heads of all layers into the picture `path` as small maps without tokens, a row for
    each of `maps` ([H,Tq,Tk] by name) and a column for each head, coloured relative to its largest
    weight.

    The colours of each small map go from 0 to its own largest weight, or from minus to plus its
    largest if one is below 0: pictures of shapes, not of sizes.

    Args:
      path: ends in .png, .svg or .pdf.
      maps: [H,Tq,Tk] by name, at least one; numbers of heads and of tokens may differ.
      title: stands above.
      width: of the picture in inches; None for 0.6 inches a head.

    Raises:
      UserError: the path ends in something else.
    """
    names = [label(name, room=(width or math.inf) / 3) for name in maps]
    left, across = 0.15 + extent(*names)[0], max(map(len, maps.values()))
    side = 0.6 if width is None else (width - left - 0.05) / across
    wide = max(width or 3.5, left + side * across + 0.05)
    figure = figure_of(wide, 0.6 + side * len(maps), paper=width is not None)
    add_title(figure, title)
    panel = add_panel(figure, left, 0.55, side * across, side * len(maps))
    for row, heads in enumerate(maps.values()):
        for head, weights in enumerate(np.asarray(heads, np.float64)):
            scaled = weights / (np.nanmax(np.abs(weights), initial=0.0) or 1.0)
            image = _draw(panel, scaled, signed=_signed(scaled))
            image.set_extent((head - 0.46, head + 0.46, row + 0.46, row - 0.46))
    panel.set(xlim=(-0.5, across - 0.5), ylim=(len(maps) - 0.5, -0.5), frame_on=False)
    set_labels(panel.xaxis, [str(head) for head in range(across)], side, turned=False)
    set_labels(panel.yaxis, names, side)
    save_figure(figure, path)


def save_arcs(
    path: File,
    weights: np.ndarray,
    tokens: Sequence[str],
    title: str = "",
    width: float | None = None,
) -> None:
    """Draws self-attention weights [H,T,T] of 0.05 and more as arcs between the `tokens` of a text
    into the picture `path`, the heads one below the other; raises `ValueError` if shapes do not
    fit.

    An arc above the line leads to an earlier token, one below it to a later token. A larger weight
    gives a stronger colour. Weights of a token on itself, and weights below 0.05, are left out.

    Args:
      path: ends in .png, .svg or .pdf.
      weights: [H,T,T] or [T,T].
      tokens: T tokens, from left to right in every script.
      title, width: as those of `save_map`.

    Raises:
      ValueError: the shape does not fit the tokens, or there is nothing to draw.
      UserError: the path ends in something else.
    """
    room = (width or math.inf) * _LABEL
    maps, labels = _checked(weights, tokens, tokens), [label(name, room=room) for name in tokens]
    heads = [arcs(head) for head in maps]
    lowest = -1 if any(later > here for head in heads for here, later, _ in head) else 0
    longest, tallest = extent(*labels)
    cell = min(0.3, (width - 0.6) / len(labels)) if width else max(_CELL, tallest)
    line, rise = cell * len(labels), (1 - lowest) * min(0.5 * cell * len(labels), 1.8)
    wide, down = width or max(3.5, line + 0.6), rise + 0.2 + longest
    figure = figure_of(wide, 0.35 + down * len(maps), paper=width is not None)
    add_title(figure, title)
    for number, head in enumerate(heads):
        panel = add_panel(figure, (wide - line) / 2, 0.35 + down * number, line, rise)
        set_labels(panel.xaxis, labels, cell)
        _draw_arcs(panel, head, len(labels), lowest)
        panel.set_ylabel(f"head {number}" if len(maps) > 1 else "", fontsize=8)
    save_figure(figure, path)


def _draw_arcs(panel: Any, looks: list[tuple[int, int, float]], length: int, lowest: int) -> None:
    """Draws the arcs of one head (`looks`: from, to, weight, see `arcs`) over `length` tokens into
    a panel, whose y axis starts at `lowest`.
    """
    from matplotlib.collections import LineCollection

    turn = np.linspace(0, np.pi, 33)
    lines = [_arc(begin, end, turn, length) for begin, end, _ in looks]
    colours = [(0.15, 0.3, 0.6, weight) for *_, weight in looks]
    panel.add_collection(LineCollection(lines, colors=colours, linewidths=1.4))
    panel.set(xlim=(-0.5, length - 0.5), ylim=(1.05 * lowest, 1.05), yticks=[])
    panel.spines[["top", "left", "right"]].set_visible(False)


def arcs(weights: np.ndarray) -> list[tuple[int, int, float]]:
    """Returns triples (query position, key position, weight cut to 1) of the weights [T,T] that are
    at least `_FAINT` = 0.05 and not of a token on itself, the smallest first. The strongest comes
    last, so that it lies on top.
    """
    rows, columns = np.nonzero(np.nan_to_num(weights) >= _FAINT)
    looks = [
        (int(i), int(j), min(float(weights[i, j]), 1.0))
        for i, j in zip(rows, columns, strict=True)
        if i != j
    ]
    return sorted(looks, key=lambda look: look[2])


def _arc(begin: int, end: int, turn: np.ndarray, length: int) -> np.ndarray:
    """Returns the points [P,2] of half an ellipse between two tokens, above the line if `end` is
    before `begin`; as high as it is wide, limited by the height of the panel.
    """
    middle, radius = (begin + end) / 2, abs(begin - end) / 2
    high = radius / max((length - 1) / 2, 1) * (1 if end < begin else -1)
    return np.stack([middle + radius * np.cos(turn), high * np.sin(turn)], axis=1)


def save_arrays(
    path: File, weights: Mapping[str, np.ndarray], labels: Mapping[str, Sequence[str]]
) -> None:
    """Writes `weights` (arrays by name) and `labels` (lists of strings by name) as a compressed
    .npz file that `numpy.load` reads without pickle; raises `ValueError` if a map and a label have
    the same name.

    Args:
      weights: by name ("decoder/0/cross").
      labels: lists of strings, each stored under its name ("source_tokens").

    Raises:
      ValueError: a map has the name of one of the labels.
    """
    if clash := sorted(labels.keys() & weights.keys()):
        raise ValueError(f"a map cannot be called {clash[0]!r}")
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in weights.items()}
    arrays |= {name: np.array(list(texts), dtype=np.str_) for name, texts in labels.items()}
    np.savez_compressed(buffer := io.BytesIO(), **arrays)
    figures.write_file(path, buffer.getvalue())


def _checked(weights: np.ndarray, columns: Sequence[str], rows: Sequence[str]) -> np.ndarray:
    """Returns the weights as float64 [H,Tq,Tk]; raises ValueError if they have no element or do not
    fit the labels.
    """
    maps = np.asarray(weights, dtype=np.float64)
    maps = maps[None] if maps.ndim == 2 else maps
    wanted = (len(rows), len(columns))
    if maps.ndim != 3 or maps.shape[1:] != wanted or maps.size == 0:
        raise ValueError(
            f"weights of shape {np.shape(weights)} do not go with the labels of {wanted[0]} rows"
            f" and {wanted[1]} columns"
        )
    return maps


def _signed(maps: np.ndarray) -> bool:
    """Whether a weight is below 0, by more than rounding."""
    return bool(np.nanmin(maps, initial=0.0) < -_DUST)


def _draw(panel: Any, weights: np.ndarray, *, signed: bool) -> Any:
    """Draws the weights of one head as colours and returns the matplotlib image; colours are from
    -1 to 1 if `signed`, else from 0.
    """
    import matplotlib

    name, bad, low = ("RdBu", "black", -1.0) if signed else ("viridis", "red", 0.0)
    colours = matplotlib.colormaps[name].with_extremes(bad=bad)
    panel.xaxis.tick_top()
    panel.tick_params(length=2, pad=1.5)
    return panel.imshow(
        weights, cmap=colours, vmin=low, vmax=1.0, aspect="auto", interpolation="nearest"
    )


def _tips(maps: np.ndarray) -> str:
    """Returns which ends of the colour bar get a tip ("min", "max", "both", "neither"): those with
    weights beyond them, apart from rounding.
    """
    low = np.nanmin(maps, initial=0.0) < -1 - _DUST
    high = np.nanmax(maps, initial=0.0) > 1 + _DUST
    return "both" if low and high else "min" if low else "max" if high else "neither"
