"""Numbers as pictures: curves of losses over steps or accuracies over distances, heads by layer, the
costs of heads.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from attnlab.analysis.figures import (
    File,
    add_panel,
    add_title,
    figure_of,
    save_figure,
    set_labels,
    text_style,
)
from attnlab.analysis.heads import Record
from attnlab.analysis.labels import extent, label


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
