"""Strips: every seed's number as a dot, with the mean and its interval, a line a row, the best mean
first; and every effect of a setting with its interval.
"""

import dataclasses
from collections.abc import Sequence

from attnlab.experiments.report.comparison import Comparison, Row
from attnlab.experiments.report.effects import Effect
from attnlab.experiments.report.figures.colours import ranked, reach
from attnlab.experiments.report.statistics.family import Summary
from attnlab.pages.html import Figure, literal, table_element
from attnlab.pages.svg import Look, Scale
from attnlab.pages.tables import number, signed

NAMED = 12  # rows without a number that are named
_MIDDLE, _HIGH = 11.0, 22  # pixels of a strip


def seeds(comparison: Comparison, looks: Sequence[Look]) -> Figure | None:
    """Returns the figure with one strip for each row that has values, in its style of `looks` and
    the best mean first: its seeds as dots, their mean and interval, or None where no row has a
    value.
    """
    values = reach(comparison, range(len(comparison.rows)))
    if not values:
        return None
    scale = Scale.over(values, 0.0, 100.0, log=False)  # in per cent of the width
    basis = comparison.basis
    based = next((look.row for look in looks if look.kind == "base"), None)
    base = None if based is None else comparison.rows[based].summary.mean
    shown = [place for place in ranked(comparison) if comparison.rows[place].values]
    rows = "\n".join(_line(comparison.rows[place], looks[place], scale, base) for place in shown)
    rest = [row for row in comparison.rows if not row.values]
    named = ", ".join(f"{row.name} ({'; '.join(row.missing)})" for row in rest[:NAMED])
    more = f" and {len(rest) - NAMED} more" if len(rest) > NAMED else ""
    head = f'<th>variant</th><th class="strip" data-fixed>{_axis(scale)}</th>'
    head += '<th class="number">mean</th><th class="number">n</th>'
    table = table_element("strips sortable", head, rows)
    remarks = (
        "A dot is a seed, the upright stroke their mean, the bar its 95 % interval; without an end"
        " stroke it goes on beyond the picture.",
        "" if base is None else "The dashed line is the mean of the baseline.",
        f"Without a number: {named}{more}." if rest else "",
    )
    split = "test" if basis.split == "test" else "validation"
    return Figure(f"{basis.metric} by seed, {split} split", table, remarks)


def strips(effects: Sequence[Effect], comparison: Comparison) -> Figure | None:
    """Returns the figure with a strip (difference and interval) for each effect that has a number,
    or None if no effect has one.
    """
    shown = [(effect, gap) for effect in effects if (gap := effect.difference) is not None]
    if not shown:
        return None
    ends = [end for _, gap in shown for end in (gap.mean, *(gap.interval or ()))]
    scale, rows = Scale.over([0.0, *ends], 0.0, 100.0, log=False), []
    for place, (effect, gap) in enumerate(shown):
        summary = Summary(effect.n, gap.mean, None, gap.interval)
        row = dataclasses.replace(
            comparison.rows[0], name=effect.name, values={}, missing=(), summary=summary
        )
        look = Look(-1 - place, effect.name, "c0" if effect.decided else "other")
        rows.append(_line(row, look, scale, 0.0))
    head = f'<th>effect</th><th class="strip" data-fixed>{_axis(scale)}</th>'
    head += '<th class="number">difference</th><th class="number">n</th>'
    notes = ("The bar is the interval, the dashed line no effect; grey is not told from it.",)
    body = table_element("strips", head, "\n".join(rows))
    return Figure(f"Effects on {comparison.basis.metric}", body, notes)


def _axis(scale: Scale) -> str:
    """Returns an SVG element with the numbers of the axis of the strips."""
    texts = (f'<text x="{scale(x):.1f}%" y="12">{text}</text>' for x, text in scale.ticks(5))
    names = "".join(texts)
    return f'<svg width="100%" height="16">{names}</svg>'


def _line(row: Row, look: Look, scale: Scale, base: float | None) -> str:
    """Returns a table row as HTML: the variant with the number of missing seeds, its strip of seeds
    as dots on `scale` (with the baseline's mean `base`), its mean (of an effect, which has no
    values, with its sign) and its number of seeds.
    """
    mean = row.summary.mean
    why = f' <small title="{literal("; ".join(row.missing))}">'
    missing = f"{why}{len(row.missing)} missing</small>" if row.missing else ""
    value = "" if mean is None else repr(mean)
    shown = number(mean) if row.values or mean is None else signed(mean)
    cells = [
        f'<td data-label="variant"><span>{literal(look.label)}{missing}</span></td>',
        f'<td class="strip {look.kind}" data-label="">{_strip(row, scale, base)}</td>',
        f'<td class="number" data-label="mean" data-value="{value}">{shown}</td>',
        f'<td class="number" data-label="n">{row.summary.n}</td>',
    ]
    return f'<tr data-row="{look.row}">{"".join(cells)}</tr>'


def _strip(row: Row, scale: Scale, base: float | None) -> str:
    """Returns an SVG strip for a row, as wide as its cell: a dot for each seed, their mean, the
    interval, and the baseline's mean `base`.
    """
    parts = [_upright(scale(value), 0, _HIGH, "grid") for value, _ in scale.ticks(5)]
    parts += [_upright(scale(base), 0, _HIGH, "front")] if base is not None else []
    if row.summary.interval is not None:
        low, high = row.summary.interval
        left, right = scale.clipped(low), scale.clipped(high)
        level = f'y1="{_MIDDLE:g}" y2="{_MIDDLE:g}"'
        parts.append(f'<line class="thin" x1="{left:.2f}%" x2="{right:.2f}%" {level}/>')
        ends = [end for end in (low, high) if scale.low <= end <= scale.high]
        parts += [_upright(scale(end), 7, 15, "thin") for end in ends]
    values = list(row.values.items())
    spread = 5.0 / max(len(values) - 1, 1)
    for place, (seed, value) in enumerate(values):
        y = _MIDDLE + (spread * (2 * place - len(values) + 1) / 2 if len(values) > 1 else 0.0)
        title = f"<title>seed {seed}: {number(value)}</title>"
        parts.append(
            f'<circle class="dot" cx="{scale(value):.2f}%" cy="{y:.1f}" r="2.6">{title}</circle>'
        )
    if row.summary.mean is not None:
        parts.append(_upright(scale(row.summary.mean), 2, _HIGH - 2, "line"))
    begin = f'<svg width="100%" height="{_HIGH}" role="img" aria-label="{literal(_row_text(row))}">'
    return f"{begin}{''.join(parts)}</svg>"


def _upright(x: float, top: float, bottom: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{top:g}" y2="{bottom:g}"/>'


def _row_text(row: Row) -> str:
    none = "no number" if row.summary.mean is None else number(row.summary.mean)
    return f"{row.name}: {', '.join(map(number, row.values.values())) or none}"
