"""Learning curves: the mean over seeds of each row of the comparison, and a band from the lowest to
the highest seed.

They are drawn over steps, and the measure also over training FLOPs and over seconds of training
steps, where these differ.
"""

import bisect
import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from attnlab.experiments.report.collect import Record, Records
from attnlab.experiments.report.comparison import Comparison, Row
from attnlab.experiments.report.figures.colours import DIRECT, legend, ranked
from attnlab.pages.html import Figure, panels
from attnlab.pages.svg import Chart, Look

MOST = 80  # points of a line that are drawn
# if the largest FLOPs of a step are at most this times the smallest, the picture equals that over
# steps
NEAR = 1.05


@dataclasses.dataclass(frozen=True)
class Line:
    """The curve of one row.

    Attributes:
      name: of the row.
      points: step (or FLOPs, or seconds) to (lowest, mean, highest) over the seeds that have this
        step.
      seeds: how many there are at most.
    """

    name: str
    points: Mapping[float, tuple[float, float, float]]
    seeds: int


def curves(records: Records, comparison: Comparison, looks: Sequence[Look]) -> Figure | None:
    """Returns the figure of learning curves in the rows' styles `looks`, with panels for training
    loss and validation measures over steps, and for the main measure (else the selection's) over
    FLOPs (if rows differ by more than 5 % in them) and seconds (if recorded), or None without any
    record.
    """
    plan = records.plan
    measure = plan.measure["metric"]
    wanted = metrics(comparison, ("loss", plan.select["metric"], measure))
    if measure not in wanted:
        wanted += metrics(comparison, ("accuracy",))
    wanted_panels = [("training loss", "step", lines(comparison, "train", "loss"))]
    wanted_panels += [
        (f"validation {metric}", "step", lines(comparison, "valid", metric)) for metric in wanted
    ]
    main = measure if measure in wanted else plan.select["metric"]
    if main in wanted:
        stretched = _stretched(comparison, lines(comparison, "valid", main))
        wanted_panels += [
            (f"validation {main} by {name.split()[0]}", name, traces) for name, traces in stretched
        ]
    drawn = [
        draw(traces, title, looks, ranked(comparison), name)
        for title, name, traces in wanted_panels
        if any(line.points for line in traces)
    ]
    if not drawn:
        return None
    steps = [
        len(line.points) for _, name, traces in wanted_panels for line in traces if name == "step"
    ]
    remarks = (
        "Lines: mean over the seeds that reached the step. Bands, of lines in colour: from the"
        " lowest to the highest seed.",
        f"Seconds: of training steps, without compiling and evaluating. A line of more than {MOST}"
        " points is thinned out.",
        f"{measure} is measured once training is over, so that it has no curve."
        * (measure not in wanted),
        "A single point is a row that was recorded once; less training.log_every (training loss) or"
        " training.evaluate_every (validation) makes a line." * (1 in steps),
    )
    return Figure("Learning curves", f"{legend(comparison, looks)}\n{panels(drawn)}", remarks)


def lines(comparison: Comparison, split: str, metric: str) -> list[Line]:
    """The curve of every row; empty without a record."""
    return [_line(row, split, metric) for row in comparison.rows]


def metrics(comparison: Comparison, wanted: Sequence[str]) -> list[str]:
    """Returns those metrics of `wanted` that the validation records of any trial have, each once."""
    points = (point for record in comparison.records for point in record.logged.curve)
    recorded = {name for point in points if point["split"] == "valid" for name in point}
    return [name for name in dict.fromkeys(wanted) if name in recorded]


def draw(
    curves: Sequence[Line],
    title: str,
    looks: Sequence[Look],
    order: Sequence[int],
    x_label: str = "step",
) -> str:
    """Returns an SVG element with a line for each curve, thinned to `MOST` points, and a band for
    coloured ones of several seeds; grey ones lie beneath, else the first index of `order` is on
    top; the x axis is logarithmic if all x are above 0 and one curve is ten times as long as
    another.
    """
    thin = [dataclasses.replace(curve, points=_thinned(curve.points)) for curve in curves]
    xs = [x for curve in thin for x in curve.points]
    ys = [
        value
        for curve, look in zip(thin, looks, strict=True)
        for point in curve.points.values()
        for value in (point if look.shown else point[1:2])
    ]
    named = sum(bool(curve.points) for curve in thin) <= DIRECT
    ends = [max(curve.points) for curve in thin if curve.points]
    log = len(ends) > 1 and min(xs) > 0 and max(ends) >= 10 * min(ends)
    chart = Chart(title, xs, ys, x_label=x_label, x_log=log, names=named)
    for place in sorted(order, key=lambda place: not looks[place].shown)[::-1]:
        curve, look = thin[place], looks[place]
        low, mean, high = (
            [(x, point[part]) for x, point in curve.points.items()] for part in range(3)
        )
        band = chart.band(low, high) if curve.seeds > 1 and look.shown else ""
        dotted = mean if look.shown and 1 < len(mean) < 10 else []
        dots = [chart.dot(point, radius=1.8) for point in dotted]
        chart.group(look, curve.name, [band, chart.line(mean), *dots])
    if named:
        drawn = [place for place in order if thin[place].points]
        lasts = [(looks[place], list(thin[place].points.items())[-1]) for place in drawn]
        chart.end_names([(look, (x, mean)) for look, (x, (_, mean, _)) in lasts])
    return chart.text


def seconds_at(record: Record, steps: Sequence[float]) -> list[float]:
    """Returns the seconds of training up to each of `steps`, by linear interpolation between the
    logged steps of a trial (after the last, at its pace); [] if it logged no times.
    """
    times = [(0.0, 0.0)]
    for logged, seconds in sorted(record.logged.pace.items()):
        times.append((logged, times[-1][1] + seconds * (logged - times[-1][0])))
    if len(times) < 2:
        return []
    interpolated = []
    for step in steps:
        place = min(max(bisect.bisect_left(times, (step,)), 1), len(times) - 1)
        (before, then), (after, now) = times[place - 1 : place + 1]
        interpolated.append(then + (now - then) * (step - before) / (after - before))
    return interpolated


def _stretched(comparison: Comparison, curves: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Returns a list of up to two pairs of an axis name and the curves over it: over FLOPs in place
    of steps, if rows differ in FLOPs per step by more than 5 %, and over seconds in place of steps,
    if any row has times.
    """
    flops = [row.candidate.flops for row in comparison.rows]
    stretched = []
    if flops and min(flops) > 0 and max(flops) > NEAR * min(flops):
        costs = zip(curves, flops, strict=True)
        spent = [{step: step * taken for step in curve.points} for curve, taken in costs]
        stretched.append(("FLOPs of training", _over(curves, spent)))
    of_rows = zip(comparison.rows, curves, strict=True)
    clocks = [_clock(row, list(curve.points)) for row, curve in of_rows]
    if any(clocks):
        stretched.append(("seconds of training steps", _over(curves, clocks)))
    return stretched


def _clock(row: Row, steps: Sequence[float]) -> dict[float, float]:
    """Returns the seconds of training at each step, the mean over the trials of a row that have
    times; {} without any.
    """
    each = [seconds for record in row.records if (seconds := seconds_at(record, steps))]
    means = map(statistics.fmean, zip(*each, strict=True))
    return dict(zip(steps, means, strict=True)) if each else {}


def _over(curves: Sequence[Line], at: Sequence[Mapping[float, float]]) -> list[Line]:
    """Returns the curves with each step replaced by its number in `at`, which has a mapping of
    steps to numbers for each curve; points of steps without a number are left out.
    """
    moved = []
    for curve, numbers in zip(curves, at, strict=True):
        points = {numbers[step]: point for step, point in curve.points.items() if step in numbers}
        moved.append(dataclasses.replace(curve, points=points))
    return moved


def _line(row: Row, split: str, metric: str) -> Line:
    """Returns a row's learning curve as a `Line`: its name, for each step the (lowest, mean,
    highest) value over the seeds that logged it, and the largest number of seeds at a step.
    """
    series = [record.series(split, metric) for record in row.records]
    steps = sorted({step for values in series for step in values})
    at = {step: [values[step] for values in series if step in values] for step in steps}
    points: dict[float, tuple[float, float, float]] = {
        step: (min(values), statistics.fmean(values), max(values)) for step, values in at.items()
    }
    return Line(row.name, points, max(map(len, at.values()), default=0))


def _thinned(
    points: Mapping[float, tuple[float, float, float]],
) -> dict[float, tuple[float, float, float]]:
    """Returns at most `MOST` of the points, evenly chosen, the first and the last among them."""
    every = list(points.items())
    if len(every) <= MOST:
        return dict(every)
    return dict(every[round(place * (len(every) - 1) / (MOST - 1))] for place in range(MOST))
