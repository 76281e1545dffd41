"""What measured costs say: how time grows with length, from which length a mixer is cheaper than
exact attention, a table, a file and a picture. Needs no jax.

    exponent  = slope of log seconds over log T, by least squares, over the lengths from 2,048 on
    crossing  = the least measured length from which on a mixer takes less than the baseline, up to
                the last length at which both were measured
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attnlab.analysis.figures import figure_bytes, figure_of
from attnlab.records.files import csv_text, write_atomic

NEVER = "never in range"
LONG = 2048


class Point(NamedTuple):
    """One mixer at one length T.

    Attributes:
      name: of the mixer.
      length: T.
      parameters: numbers that are learned.
      state_bytes: kept of a text of T tokens.
      flops: of a forward pass, counted in its program before it is compiled, loops as often as they
        run.
      compiled_flops: what XLA counts in the program; the iterations of a loop count once.
      bytes: of the compiled program: arguments, results and everything between.
      seconds: the least of some runs; nan if it was not run.
      compile_seconds: of the compiler.
      why: why there are no seconds.
    """

    name: str
    length: int
    parameters: int = 0
    state_bytes: int = 0
    flops: float = 0.0
    compiled_flops: float = 0.0
    bytes: int = 0
    seconds: float = math.nan
    compile_seconds: float = math.nan
    why: str = ""


Points = Mapping[str, Sequence[Point]]
"""By name, in the order of their lengths."""
Of = Literal["seconds", "bytes"]


def exponent(points: Sequence[Point], of: Of = "seconds") -> float:
    """Returns the slope of log seconds (or bytes, by `of`) over log length of the measured
    `points`, by least squares over lengths from `LONG` on; nan with fewer than two such points.
    """
    logs = [
        (math.log(point.length), math.log(getattr(point, of)))
        for point in points
        if point.length >= LONG and getattr(point, of) > 0
    ]
    if len(logs) < 2:
        return math.nan
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def crossing(points: Sequence[Point], baseline: Sequence[Point], of: Of = "seconds") -> int | None:
    """Returns the least length from which on `points` take less than `baseline` (seconds or bytes,
    by `of`) at all lengths measured for both, or None if they do not at the largest of these.
    """
    other = {point.length: getattr(point, of) for point in baseline}
    less: int | None = None
    for point in points:
        mine, theirs = getattr(point, of), other.get(point.length, math.nan)
        if not (mine > 0 and theirs > 0):
            continue
        if mine >= theirs:
            less = None
        elif less is None:
            less = point.length
    return less


def rows(points: Points, baseline: str, cards: Mapping[str, Mapping[str, str]]) -> list[list[Any]]:
    """Returns the rows of a table with the columns `COLUMNS`, one for each mixer: its size, the
    growth that its card in `cards` declares, costs at the longest length measured, exponent, and
    lengths from which it costs less than the mixer `baseline`.
    """
    table = []
    for name, every in points.items():
        last = next((point for point in reversed(every) if point.seconds > 0), every[-1])
        beats = [
            "" if name == baseline else _length(crossing(every, points[baseline], of))
            for of in ("seconds", "bytes")
        ]
        card = cards.get(name, {})
        growth = (card.get(key, "") for key in ("time", "state", "path", "steps"))
        sizes = (1e3 * last.seconds, last.bytes / 2**20, last.state_bytes / 2**10)
        table.append([name, last.parameters, *growth, last.length, *sizes, exponent(every), *beats])
    return table


COLUMNS = (
    "mixer",
    "parameters",
    "time",
    "state",
    "path",
    "steps",
    "at length",
    "ms",
    "MiB",
    "state KiB",
    "exponent",
    "faster from",
    "smaller from",
)


def _length(length: int | None) -> str:
    return NEVER if length is None else f"{length:,}"


def write(points: Points, about: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes `costs.csv` (a row for every mixer and length), `costs.json` (the same with `about`)
    and `costs.png` into `folder`, and returns their paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    every = [point for some in points.values() for point in some]
    files = {name: folder / f"costs.{name}" for name in ("csv", "json", "png")}
    write_atomic(files["csv"], csv_text([Point._fields, *every], "\n"))
    record = {**about, "points": [_plain(point) for point in every]}
    write_atomic(files["json"], json.dumps(record, indent=1) + "\n")
    write_atomic(files["png"], picture(points, str(about.get("title", ""))))
    return list(files.values())


def _plain(point: Point) -> dict[str, Any]:
    """Returns the fields of a point by name for JSON, with None in place of nan."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in point._asdict().items()
    }


def picture(points: Points, title: str) -> bytes:
    """Draws time and memory over length in two panels, both axes logarithmic, a line for each
    mixer, and returns the bytes of the PNG; a panel without measurements is empty.
    """
    figure = figure_of(11.0, 5.0)
    parts: tuple[tuple[Of, str, float], ...] = (
        ("seconds", "milliseconds", 1e3),
        ("bytes", "MiB of the program", 2.0**-20),
    )
    styles = ("-", "--", ":", "-.")
    for number, (of, label, scale) in enumerate(parts):
        axes = figure.add_subplot(1, 2, number + 1)
        for place, (name, every) in enumerate(points.items()):
            measured = [point for point in every if getattr(point, of) > 0]
            axes.plot(
                [point.length for point in measured],
                [scale * getattr(point, of) for point in measured],
                marker=".",
                linestyle=styles[place // 10 % len(styles)],
                label=name,
            )
            if measured:  # else Matplotlib raises for a logarithm of nothing
                axes.set_xscale("log", base=2)
                axes.set_yscale("log")
        axes.set_xlabel("tokens")
        axes.set_title(label, fontsize=10)
        axes.grid(True, which="both", alpha=0.25)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.subplots_adjust(left=0.06, right=0.84, wspace=0.2, bottom=0.11, top=0.88)
    return figure_bytes(figure)
