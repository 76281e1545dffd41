"""Effects of settings as strips: the number, its interval, and where nothing would be."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.experiments.report.comparison import Comparison
from attnlab.experiments.report.effects import Effect
from attnlab.experiments.report.figures.seeds import axis, strip
from attnlab.pages.html import Figure, literal, table_element
from attnlab.pages.scales import Scale
from attnlab.pages.tables import p_value, signed


def effects(found: Sequence[Effect], comparison: Comparison) -> Figure | None:
    """Returns the figure with a strip for each effect that has a number; None without any."""
    shown = [(effect, gap) for effect in found if (gap := effect.difference) is not None]
    if not shown:
        return None
    ends = [end for _, gap in shown for end in (gap.mean, *(gap.interval or ()))]
    scale, rows = Scale.over([0.0, *ends], 0.0, 100.0, log=False), []
    for effect, gap in shown:
        decided = gap.p is not None and gap.p < comparison.alpha and not effect.lacking
        cells = [
            f'<td data-label="effect"><span>{literal(effect.name)}</span></td>',
            f'<td class="strip {"base" if decided else "other"}" data-label="">'
            f"{strip(effect.sentence, scale, 0.0, gap.interval, gap.mean)}</td>",
            f'<td class="number" data-label="difference">{signed(gap.mean)}</td>',
            f'<td class="number" data-label="adjusted p">{literal(p_value(gap.p))}</td>',
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = f'<th>effect</th><th class="strip" data-fixed>{axis(scale)}</th>'
    head += '<th class="number">difference</th><th class="number">adjusted p</th>'
    notes = (
        "The upright stroke is the effect, the bar its interval; left and right of the dashed line"
        f" {comparison.basis.metric} falls and rises.",
        "Grey: not told from none.",
    )
    return Figure("Effects of settings", table_element("strips", head, "\n".join(rows)), notes)
