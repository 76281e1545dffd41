"""Effects of settings as strips: each with its interval, and where no effect would be."""

import dataclasses
from collections.abc import Sequence

from attnlab.experiments.report.comparison import Comparison
from attnlab.experiments.report.effects import Effect
from attnlab.experiments.report.figures.seeds import axis, line
from attnlab.experiments.report.statistics import Summary
from attnlab.pages.html import Figure, table_element
from attnlab.pages.scales import Scale
from attnlab.pages.svg import Look


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
        rows.append(line(row, look, scale, 0.0))
    head = f'<th>effect</th><th class="strip" data-fixed>{axis(scale)}</th>'
    head += '<th class="number">difference</th><th class="number">n</th>'
    notes = ("The bar is the interval, the dashed line no effect; grey is not told from it.",)
    body = table_element("strips", head, "\n".join(rows))
    return Figure(f"Effects on {comparison.basis.metric}", body, notes)
