"""Which rows stand out in the figures, and in which colours: the first by their mean and the
baseline; the others are grey.
"""

from collections.abc import Sequence

from attnlab.experiments.report.comparison import Comparison
from attnlab.pages.html import fold, literal
from attnlab.pages.svg import Look, kind, swatch

DIRECT = 8  # how many rows are named inside a figure


def ranked(comparison: Comparison) -> list[int]:
    """Returns the indices of the rows, sorted by mean with the best first; rows without a mean come
    last.
    """
    sign = -1 if comparison.basis.mode == "max" else 1
    means = [row.summary.mean for row in comparison.rows]
    return sorted(
        range(len(means)),
        key=lambda place: (means[place] is None, sign * (means[place] or 0.0), place),
    )


def looks(comparison: Comparison, baseline: str) -> list[Look]:
    """Returns the style (`Look`) of each row in figures, in the order of the rows: the baseline's
    own style once candidates are chosen, colours by rank for the others, and grey for those after
    the last colour or, unless no row has a mean, without a mean. Before the choice no row is the
    baseline, since any of its candidates may be chosen.
    """
    styles: dict[int, Look] = {}
    scored = any(row.summary.mean is not None for row in comparison.rows)
    coloured = 0
    for place in ranked(comparison):
        row = comparison.rows[place]
        based = comparison.frozen and row.candidate.variant == baseline
        style = "other" if scored and row.summary.mean is None else kind(coloured)
        styles[place] = Look(place, row.name, "base" if based else style)
        coloured += not based
    return [styles[place] for place in range(len(comparison.rows))]


def reach(comparison: Comparison, places: Sequence[int]) -> list[float]:
    """Returns the numbers that the axis for the rows with the indices `places` must show: the
    values of all seeds, and the ends of intervals, moved to at most one range of the values beyond
    them; [] without values.
    """
    rows = [comparison.rows[place] for place in places]
    values = [value for row in rows for value in row.values.values()]
    if not values:
        return []
    low, high = min(values), max(values)
    room = (high - low) or max(abs(high) * 0.01, 1e-6)
    ends = [end for row in rows if row.summary.interval for end in row.summary.interval]
    return [*values, *(min(max(end, low - room), high + room) for end in ends)]


def legend(comparison: Comparison, drawn: Sequence[Look]) -> str:
    """Returns the legend of colours and row names as HTML, from the styles `drawn` of all rows, the
    best row first; grey rows come last, folded.
    """
    order = [drawn[place] for place in ranked(comparison)]
    coloured = "".join(_entry(look) for look in order if look.shown)
    grey = [look for look in order if not look.shown]
    names = "".join(_entry(look) for look in grey)
    rest = fold(f"in grey: {len(grey)} others", f'<ul class="legend">{names}</ul>') if grey else ""
    return f'<ul class="legend">{coloured}</ul>{rest}'


def _entry(look: Look) -> str:
    return f'<li data-row="{look.row}">{swatch(look)}{literal(look.label)}</li>'
