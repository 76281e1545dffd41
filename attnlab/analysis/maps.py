"""Pictures and arrays of attention: weights [H,Tq,Tk] with a label for every row and column, and
curves over steps.

Rows are queries, columns are keys: for a translator target and source tokens, as in figure 3 of
Bahdanau et al. (2015). All pictures of weights have the same colours, 0 to 1. A map with weights
below 0 (differential attention and talking heads can have them) has colours from -1 to 1 with white
for 0. Axis letters: H heads, Tq queries, Tk keys. Everything is drawn off screen, and every file is
written whole or not at all.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from attnlab.analysis.labels import FONT_SIZE, fonts, inches, label
from attnlab.records.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CELL = 0.17  # inches per token, so that labels do not touch
_FAINT = 0.05  # arcs with less weight are not drawn
_DPI = 110
_DUST = 1e-6  # a weight less than this below 0 is 0, rounded


def save_map(
    path: str | os.PathLike[str],
    weights: np.ndarray,
    columns: Sequence[str],
    rows: Sequence[str],
    title: str = "",
) -> None:
    """Draws attention weights as a PNG, one panel per head in a grid.

    Colours go from 0 to 1, or from -1 (red) to 1 (blue) if a weight is below 0. Values beyond the
    range get the colour of its end, and the colour bar gets a tip. NaN is red, or black if red is a
    colour of the range.

    Args:
      weights: [H,Tq,Tk] or [Tq,Tk].
      columns: the labels of the Tk columns.
      rows: the labels of the Tq rows.

    Raises:
      ValueError: the shape does not fit the labels, or there is nothing to draw.
    """
    _write(path, lambda file: file.write(map_png(weights, columns, rows, title)))


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
    maps = _checked(weights, columns, rows)
    sources, targets = ([label(name) for name in labels] for labels in (columns, rows))
    grid = _Grid.of(maps.shape, sources, targets)
    figure = _titled(title, grid.width, grid.height)
    for head in range(len(maps)):
        panel = figure.add_axes(grid.panel(head))
        image = _draw(panel, maps[head], sources, targets, signed=_signed(maps))
        if len(maps) > 1:
            panel.set_title(
                f"head {head}", fontsize=8, pad=0, y=1 + (grid.top - 0.28) / grid.panel_height
            )
    bar = figure.colorbar(image, cax=figure.add_axes(grid.bar()), extend=_tips(maps))
    bar.ax.tick_params(labelsize=7)
    bar.set_label("weight, below 0 red" if _signed(maps) else "weight", fontsize=7)
    return _png(figure)


def _titled(title: str, width: float, height: float) -> Any:
    """Returns a new figure of this size in inches with a title at its top."""
    figure = figure_of(width, height)
    title = label(title, longest=int(width / 0.085))
    figure.text(0.5, 1 - 0.08 / height, title, ha="center", va="top", **text_style(10))
    return figure


def save_arcs(
    path: str | os.PathLike[str], weights: np.ndarray, tokens: Sequence[str], title: str = ""
) -> None:
    """Draws self-attention weights of 0.05 and more as arcs between the tokens of a text, as a PNG
    file, the heads one below the other.

    An arc above the line leads to an earlier token, one below it to a later token. A larger weight
    gives a stronger colour. Weights of a token on itself, and weights below 0.05, are left out.

    Args:
      weights: [H,T,T] or [T,T].
      tokens: T tokens.

    Raises:
      ValueError: the shape does not fit the tokens, or there is nothing to draw.
    """
    maps, labels = _checked(weights, tokens, tokens), [label(token) for token in tokens]
    heads = [arcs(head) for head in maps]
    lowest = -1 if any(later > here for head in heads for here, later, _ in head) else 0
    room, rise = 0.2 + max(map(inches, labels)), min(0.5 * _CELL * len(labels), 1.8)
    width, down = max(3.5, _CELL * len(labels) + 0.6), rise * (1 - lowest) + room
    figure = _titled(title, width, height := 0.35 + down * len(maps))
    for number, head in enumerate(heads):
        bottom = height - 0.35 - down * (number + 1) + room
        size = (_CELL * len(labels) / width, rise * (1 - lowest) / height)
        panel = figure.add_axes((0.3 / width, bottom / height, *size))
        _draw_arcs(panel, head, labels, lowest)
        panel.set_ylabel(f"head {number}" if len(maps) > 1 else "", fontsize=8)
    save_figure(figure, path)


def _draw_arcs(
    panel: Any, looks: list[tuple[int, int, float]], labels: list[str], lowest: int
) -> None:
    """Draws the arcs of one head (`looks`: from, to, weight, see `arcs`) and the tokens as labels
    into a panel, whose y axis starts at `lowest`.
    """
    from matplotlib.collections import LineCollection

    turn = np.linspace(0, np.pi, 33)
    lines = [_arc(begin, end, turn, len(labels)) for begin, end, _ in looks]
    colours = [(0.15, 0.3, 0.6, weight) for *_, weight in looks]
    panel.add_collection(LineCollection(lines, colors=colours, linewidths=1.4))
    panel.set(xlim=(-0.5, len(labels) - 0.5), ylim=(1.05 * lowest, 1.05), yticks=[])
    panel.set_xticks(range(len(labels)), labels, rotation=90, **text_style(FONT_SIZE))
    panel.spines[["top", "left", "right"]].set_visible(False)


def arcs(weights: np.ndarray) -> list[tuple[int, int, float]]:
    """Returns (from, to, weight at most 1) for the weights [T,T] that `save_arcs` draws: at least
    `_FAINT`, and not of a token on itself. The strongest comes last, so that it lies on top.
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
    path: str | os.PathLike[str],
    weights: Mapping[str, np.ndarray],
    labels: Mapping[str, Sequence[str]],
) -> None:
    """Writes maps and labels by name as a compressed .npz file that `numpy.load` reads without
    pickle; ValueError if a map and a label have one name.

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
    _write(path, lambda file: np.savez_compressed(file, **arrays))


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


@dataclasses.dataclass(frozen=True)
class _Grid:
    """The layout, in inches. It is computed here, since matplotlib's layout engines need 10 s for
    eight heads of 60 tokens.
    """

    across: int
    down: int
    left: float
    top: float
    panel_width: float
    panel_height: float

    @classmethod
    def of(cls, shape: tuple[int, ...], sources: Sequence[str], targets: Sequence[str]) -> _Grid:
        """Computes the layout of H panels of Tq x Tk cells (`shape` [H,Tq,Tk]) as a grid about as
        wide as high, with space for the longest labels.
        """
        heads, rows, columns = shape
        cell = max(_CELL, 1.2 / max(rows, columns))
        left, top = (0.15 + max(map(inches, labels)) for labels in (targets, sources))
        top += 0.3 if heads > 1 else 0.0
        width, height = cell * columns, cell * rows
        across = min(heads, max(1, round(math.sqrt(heads * (height + top) / (width + left)))))
        return cls(across, math.ceil(heads / across), left, top, width, height)

    @property
    def width(self) -> float:
        """The width of the whole picture with the colour bar."""
        return max(3.5, self.across * (self.left + self.panel_width) + 1.05)

    @property
    def height(self) -> float:
        """The height of the whole picture with the title."""
        return 0.35 + self.down * (self.top + self.panel_height) + 0.15

    def panel(self, head: int) -> tuple[float, float, float, float]:
        """Returns left, bottom, width and height of a head's panel, as fractions of the picture."""
        row, column = divmod(head, self.across)
        x = column * (self.left + self.panel_width) + self.left
        y = self.height - 0.35 - (row + 1) * (self.top + self.panel_height)
        size = (self.panel_width / self.width, self.panel_height / self.height)
        return x / self.width, y / self.height, *size

    def bar(self) -> tuple[float, float, float, float]:
        """Returns left, bottom, width and height of the colour bar, beside the first row of panels,
        as fractions of the picture.
        """
        _, bottom, _, height = self.panel(0)
        long = min(2.5 / self.height, height)
        left = (self.across * (self.left + self.panel_width) + 0.2) / self.width
        return left, bottom + height - long, 0.12 / self.width, long


def _signed(maps: np.ndarray) -> bool:
    """Whether a weight is below 0, by more than rounding."""
    return bool(np.nanmin(maps, initial=0.0) < -_DUST)


def _draw(
    panel: Axes,
    weights: np.ndarray,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    signed: bool,
) -> Any:
    """Draws the weights of one head as colours with labels of columns and rows, and returns the
    matplotlib image; colours are from -1 to 1 if `signed`, else from 0.
    """
    import matplotlib

    name, bad, low = ("RdBu", "black", -1.0) if signed else ("viridis", "red", 0.0)
    colours = matplotlib.colormaps[name].with_extremes(bad=bad)
    image = panel.imshow(
        weights, cmap=colours, vmin=low, vmax=1.0, aspect="auto", interpolation="nearest"
    )
    panel.xaxis.tick_top()
    for axis, labels, turn in ((panel.xaxis, sources, 90), (panel.yaxis, targets, 0)):
        axis.set_ticks(range(len(labels)), labels, rotation=turn, **text_style(FONT_SIZE))
    panel.tick_params(length=2, pad=1.5)
    return image


def _tips(maps: np.ndarray) -> str:
    """Returns which ends of the colour bar get a tip ("min", "max", "both", "neither"): those with
    weights beyond them, apart from rounding.
    """
    low = np.nanmin(maps, initial=0.0) < -1 - _DUST
    high = np.nanmax(maps, initial=0.0) > 1 + _DUST
    return "both" if low and high else "min" if low else "max" if high else "neither"


def text_style(size: float) -> dict[str, Any]:
    """How matplotlib draws a text of data: every character, and no formulas."""
    return {"fontsize": size, "fontfamily": list(fonts()), "parse_math": False}


def figure_of(width: float, height: float) -> Figure:
    """Returns an empty matplotlib figure of this size in inches, without pyplot and its global
    state.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Draws the figure into a PNG file."""
    _write(path, lambda file: file.write(_png(figure)))


def _png(figure: Figure) -> bytes:
    """Returns the figure as a PNG with a palette of 256 colours, a third as large as one without;
    equal pictures give equal bytes.
    """
    from PIL import Image

    drawn, buffer = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    picture = Image.open(drawn).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        buffer, format="png", optimize=True
    )
    return buffer.getvalue()


def _write(path: str | os.PathLike[str], fill: Callable[[BinaryIO], Any]) -> None:
    """Calls `fill` with a buffer and writes its bytes to `path` atomically; makes the folder if
    absent.
    """
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    fill(buffer)
    write_atomic(target, buffer.getvalue())
