"""Cost against score of every row, and the rows that no other beats in both."""

from collections.abc import Mapping, Sequence

from attnlab.experiments.report.comparison import Comparison, Row
from attnlab.experiments.report.figures.colours import legend, reach
from attnlab.pages.html import Figure, panels
from attnlab.pages.svg import Chart, Look, Scale
from attnlab.pages.tables import memory, number, scaled

ALIKE = 1.005  # a cost is drawn only if its largest value is more than this times the smallest
_MEMORY = "peak memory, MiB"


def row_costs(row: Row) -> dict[str, float]:
    """Returns the costs of a row of the comparison by their kind: parameters, FLOPs per step, FLOPs
    of training, seconds of training steps (the median step times the steps), and peak memory in
    MiB; 0 for one that is not recorded.
    """
    flops, steps = row.candidate.flops, row.candidate.config["training"]["steps"]
    return {
        "parameters": row.candidate.parameters,
        "FLOPs per step": flops,
        "FLOPs of training": flops * steps,
        "seconds of training steps": (row.pace[0] or 0.0) * steps,
        _MEMORY: (row.peak[0] or 0.0) / 2**20,
    }


def front(points: Sequence[tuple[float, float]], mode: str) -> list[int]:
    """Returns the indices of the Pareto-optimal (cost, score) points, less cost and a better score
    by `mode`, from the cheapest on; of equal points all.
    """
    sign = 1 if mode == "max" else -1
    indices: list[int] = []
    best = float("-inf")
    for place in sorted(range(len(points)), key=lambda i: (points[i][0], -sign * points[i][1])):
        score = sign * points[place][1]
        if score > best or (indices and points[place] == points[indices[-1]]):
            indices.append(place)
            best = score
    return indices


def costs(comparison: Comparison, looks: Sequence[Look]) -> Figure | None:
    """Returns the figure of score against cost in the rows' styles `looks`, with a panel for every
    kind of cost in which variants differ by more than half a per cent (FLOPs of training only if
    steps differ), or None without a panel, and before the choice.
    """
    if not comparison.frozen:
        return None
    every: dict[str, dict[int, tuple[float, float]]] = {}
    for place, row in enumerate(comparison.rows):
        for kind, taken in row_costs(row).items():
            points = every.setdefault(kind, {})
            if taken and row.summary.mean is not None:
                points[place] = (taken, row.summary.mean)
    every = {kind: points for kind, points in every.items() if len(points) > 1}
    of_kind = {kind: [cost for cost, _ in points.values()] for kind, points in every.items()}
    alike = [kind for kind, amounts in of_kind.items() if max(amounts) <= ALIKE * min(amounts)]
    steps = {row.candidate.config["training"]["steps"] for row in comparison.rows}
    left_out = {*alike, *(("FLOPs of training",) if len(steps) == 1 else ())}
    drawn = {kind: points for kind, points in every.items() if kind not in left_out}
    pictures = [_panel(comparison, looks, kind, points) for kind, points in drawn.items()]
    if not pictures:
        return None
    remarks = (
        "Rings and dashes: the Pareto front, rows that no other beats in cost and mean at once, by"
        " means alone. Strokes: 95 % intervals.",
        "Axes of costs are logarithmic."
        + (f" Not drawn, the same within half a per cent: {', '.join(alike)}." if alike else ""),
        "Seconds: the median step times the number of steps, as timed in this sweep; without"
        " compiling, evaluating and decoding.",
    )
    return Figure(
        "Cost against quality", f"{legend(comparison, looks)}\n{panels(pictures)}", remarks
    )


def _panel(
    comparison: Comparison,
    looks: Sequence[Look],
    kind: str,
    points: Mapping[int, tuple[float, float]],
) -> str:
    """Returns the SVG text of one panel: mean score against one `kind` of cost, for the rows in
    `points` (row index to cost and mean), with intervals of coloured rows, the Pareto front as a
    line of steps, and names.
    """
    basis = comparison.basis
    shown = [place for place in points if looks[place].shown]
    scores = reach(comparison, shown) + [mean for _, mean in points.values()]
    title = f"{basis.metric} by {kind.partition(',')[0]}"
    chart = Chart(
        title, [x for x, _ in points.values()], scores, x_label=kind, x_log=True, y_log=False
    )
    places = list(points)
    best = [places[index] for index in front([points[place] for place in places], basis.mode)]
    chart.draw(chart.line(_stairs([points[place] for place in best], chart.x), "front"))
    for place in places:
        chart.keep_free(points[place])
    for place in sorted(places, key=lambda place: looks[place].shown):  # coloured rows lie on top
        row, point, look = comparison.rows[place], points[place], looks[place]
        reached = row.summary.interval if look.shown else None
        marks = [chart.upright(point[0], *reached)] if reached else []
        ringed = "ring dot" if place in best else "dot"
        marks.append(chart.dot(point, ringed, 4.0 if look.shown else 3.0))
        taken = f"{scaled(point[0])} {kind}"
        if kind == _MEMORY:
            taken = f"peak memory {memory(point[0] * 2**20)}"
        chart.group(look, f"{row.name}: {basis.metric} {number(point[1])}, {taken}", marks)
    for place in sorted(shown, key=lambda place: (place not in best, looks[place].kind != "base")):
        name = comparison.rows[place].name
        chart.group(looks[place], name, [chart.name(points[place], name)])
    return chart.text


def _stairs(points: Sequence[tuple[float, float]], scale: Scale) -> list[tuple[float, float]]:
    """Returns the Pareto front as points of a line of steps: constant up to the cost of the next
    point, and on to the end of the axis.
    """
    steps: list[tuple[float, float]] = []
    for point, after in zip(points, [*points[1:], (scale.high, 0.0)], strict=True):
        steps += [point, (after[0], point[1])]
    return steps
