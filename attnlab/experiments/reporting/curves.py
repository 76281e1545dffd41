"""Learning curves as SVG: the mean over seeds of each row of the comparison, and a band from the lowest to the highest seed.

Text and axes take the colour of the page (`currentColor`), so that one picture serves on light and on dark ground.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.experiments.reporting.collect import Record, is_finite
from attnlab.experiments.reporting.comparison import Comparison, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision tell apart, without their black and with a blue that shows on dark
# ground too. Every colour is used with every style.
COLOURS = ("#1F83C4", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B5A900")
STYLES = ("-", "--", ":", "-.")
_INK = "#0a0b0c"  # stands for the colour of the page until the picture is text
_SIZE = (4.6, 3.0)  # inches
_SETTINGS: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    **{"svg.hashsalt": "attnlab", "svg.fonttype": "path", "font.size": 9.5, "axes.unicode_minus": False},
}


@dataclasses.dataclass(frozen=True)
class Line:
    """The curve of one row.

    Attributes:
      name: of the row.
      points: step to (lowest, mean, highest) over the seeds that have this step.
      seeds: how many there are at most.
    """

    name: str
    points: Mapping[int, tuple[float, float, float]]
    seeds: int


def lines(comparison: Comparison, split: str, metric: str) -> list[Line]:
    """The curve of every row; of those without a record an empty one."""
    return [_line(row, split, metric) for row in comparison.rows]


def metrics(comparison: Comparison, wanted: Sequence[str]) -> list[str]:
    """Those of `wanted` that validation records hold, each once."""
    there = {name for row in comparison.rows for one in row.records for point in one.curve if point["split"] == "valid" for name in point}
    return [name for name in dict.fromkeys(wanted) if name in there]


def colour(place: int) -> tuple[str, str]:
    """Colour and line style of the row at `place`."""
    return COLOURS[place % len(COLOURS)], STYLES[place // len(COLOURS) % len(STYLES)]


def draw(curves: Sequence[Line], title: str) -> str:
    """An `<svg>` element with one line and band a curve; the same curves give the same text."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same picture whatever style a person has set for their own
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=_SIZE)
        axes = figure.subplots()
        figure.subplots_adjust(0.13, 0.15, 0.98, 0.9)
        for place, curve in enumerate(curves):
            _plot(axes, curve, *colour(place))
        axes.set_title(title, fontsize=10, parse_math=False)
        axes.set_xlabel("step")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        return _svg(figure, title)


def _line(row: Row, split: str, metric: str) -> Line:
    series = [_series(record, split, metric) for record in row.records]
    steps = sorted({step for one in series for step in one})
    at = {step: [one[step] for one in series if step in one] for step in steps}
    points = {step: (min(values), statistics.fmean(values), max(values)) for step, values in at.items()}
    return Line(row.name, points, max(map(len, at.values()), default=0))


def _series(record: Record, split: str, metric: str) -> dict[int, float]:
    """Step to value of one trial; what is no finite number is left out."""
    found: dict[int, Any] = {point["step"]: point.get(metric) for point in record.curve if point["split"] == split}
    return {step: float(value) for step, value in found.items() if is_finite(value)}


def _plot(axes: Axes, curve: Line, ink: str, style: str) -> None:
    steps = list(curve.points)
    low, mean, high = ([point[part] for point in curve.points.values()] for part in range(3))
    axes.plot(steps, mean, style, color=ink, linewidth=1.6, marker="o" if len(steps) < 12 else None, markersize=3)
    if curve.seeds > 1:
        axes.fill_between(steps, low, high, color=ink, alpha=0.18, linewidth=0)


def _svg(figure: Figure, title: str) -> str:
    """The figure as an element that takes part in a page: no prolog, no date, no size and no name that another picture has too."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (width|height)="[^"]*pt"', "", text, count=2)
    mark = re.sub(r"\W+", "-", title)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{mark}-", text)
    text = text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)
    return text.replace(_INK, "currentColor").strip()
