"""Curves as pictures: losses over steps, accuracies over distances."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from attnlab.analysis.labels import label
from attnlab.analysis.maps import figure_of, save_figure


def save_curve(
    path: str | os.PathLike[str],
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str = "",
    x_label: str = "step",
    y_label: str = "loss",
    bars: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    doubling: bool = False,
) -> None:
    """Draws curves as a PNG file `path`: `series` maps a name to its (x, y) points, in order. A
    series without points is only in the legend.

    Args:
      bars: name to the lower and the upper end of a bar at each of its points.
      doubling: whether each doubling of x is equally wide, with the points' own x as ticks.
    """
    figure = figure_of(6.4, 4.0)
    axes = figure.subplots()
    figure.subplots_adjust(0.11, 0.12, 0.97, 0.92)
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
    axes.set_xlabel(label(x_label, longest=60), parse_math=False)
    axes.set_ylabel(label(y_label, longest=60), parse_math=False)
    axes.set_title(label(title, longest=200), parse_math=False, fontsize=10)
    axes.grid(alpha=0.3)
    if series:
        for text in axes.legend(fontsize=8, frameon=False).get_texts():
            text.set_parse_math(False)
    save_figure(figure, path)
