"""A report as one self-contained HTML file: styles, pictures and a small script are inside. It can
be read on a telephone, on light and dark ground, on paper, and without the script.
"""

import dataclasses

from attnlab.experiments.report.contents import Contents, Section
from attnlab.experiments.report.statistics.family import REFUTED, SUPPORTED
from attnlab.pages.html import Figure, figure, literal, table, whole
from attnlab.pages.tables import Table

MANY = 20  # from this many rows on, a table other than the main one is folded
MOST = 600  # the most rows of a table in the page; the other files have all


def page(contents: Contents) -> str:
    """Returns the report as the text of one self-contained HTML file."""
    plan = contents.records.plan
    source = f"{plan.file}, plan {plan.hash}. Base config: {plan.config}."
    parts = [_head(contents), *(_part(section, part) for section, part in contents.parts)]
    return whole(f"{plan.name}: {plan.question}", [*parts, f"<footer>{literal(source)}</footer>"])


def _part(section: Section, part: Table | Figure) -> str:
    """Returns the table or figure `part` of a section of the report as HTML; a table outside the
    main and linked sections is cut to `MOST` rows, and a table of more than `MANY` rows outside the
    main section is folded.
    """
    if isinstance(part, Figure):
        return figure(part)
    shown = part if section.linked or section.main else _bounded(part)
    folded = len(part.rows) > MANY and not section.main
    return table(shown, linked=section.linked, folded=folded)


def _head(contents: Contents) -> str:
    """Returns the header of the page as HTML: name, question, warnings, verdict, what is
    unfinished, and the numbers of variants and trials.
    """
    plan, verdict = contents.records.plan, contents.verdict
    outcome, warnings = literal(contents.outcome), contents.warnings
    judged = f'<p class="verdict">{outcome.capitalize()}.</p>'
    if verdict is not None:
        tone = {SUPPORTED: "yes", REFUTED: "no"}.get(verdict.outcome, "open")
        claim = f"<span>Claim: {literal(verdict.statement)}</span>"
        judged = f'<p class="verdict {tone}"><b>{outcome}</b>{claim}</p>'
    first = "".join(f"<li><b>{literal(kind)}</b>: {literal(text)}</li>" for kind, text in warnings)
    missing = contents.unfinished
    lines = [
        "<header>",
        f'<p class="name">{literal(plan.name)}</p>',
        f"<h1>{literal(plan.question)}</h1>",
        f'<ul class="warnings">{first}</ul>' if first else "",
        judged,
        f'<p class="unfinished">{literal(missing)}</p>' if missing else "",
        f"<p>{literal(contents.extent)}.</p>",
        "</header>",
    ]
    return "\n".join(filter(None, lines))


def _bounded(of: Table) -> Table:
    """Returns the table with at most `MOST` of its rows, preferring weak ones (failed trials, for
    example), and a note if rows were left out.
    """
    if len(of.rows) <= MOST:
        return of
    places = sorted(sorted(range(len(of.rows)), key=lambda place: place not in of.weak)[:MOST])
    order = "those that are not done before others; report.md has all."
    note = f"{MOST} of {len(of.rows)} rows are here, {order}"
    return dataclasses.replace(of.rows_at(places), notes=(*of.notes, note))
