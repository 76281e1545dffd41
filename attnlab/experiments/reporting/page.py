"""A report as one HTML file that needs nothing else: styles and pictures are inside, and there is no script.

It reads from a telephone's width up, where every row of a table becomes a block with its columns' names beside the cells, and on light
and dark ground.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path

from attnlab.experiments.reporting import curves
from attnlab.experiments.reporting.contents import Contents
from attnlab.experiments.reporting.tables import Table
from attnlab.experiments.reporting.verdict import REFUTED, SUPPORTED

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
STYLE = """\
:root { --ground: #ffffff; --ink: #1b1f24; --quiet: #59636e; --line: #d5dae0; --panel: #f5f7f9;
  --yes: #116329; --no: #a40e26; --open: #7a5200; --strong: #e6f4ea; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e4e8ec; --quiet: #98a3ae; --line: #343b43; --panel: #1d2126;
    --yes: #5fcf80; --no: #ff8a8f; --open: #e3b341; --strong: #16301f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 20px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .8rem; text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: .2rem 0 .4rem; overflow-wrap: anywhere; }
.name { margin: 0; color: var(--quiet); overflow-wrap: anywhere; }
.verdict { margin: 0 0 .8rem; padding: .7rem .9rem; background: var(--panel); border-left: 5px solid var(--quiet); }
.verdict b { display: block; font-size: 1.1rem; }
.verdict b::first-letter { text-transform: uppercase; }
.yes { border-color: var(--yes); } .yes b { color: var(--yes); }
.no { border-color: var(--no); } .no b { color: var(--no); }
.open { border-color: var(--open); } .open b { color: var(--open); }
.unfinished { padding: .5rem .9rem; border: 1px dashed var(--open); color: var(--open); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; }
th, td { padding: .34rem .45rem; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; vertical-align: bottom; }
td { overflow-wrap: break-word; max-width: 34em; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
td:first-child { min-width: 8em; }
.strong { background: var(--strong); font-weight: 600; }
.weak td { color: var(--open); }
ul { margin: .5rem 0 0; padding-left: 1.1rem; color: var(--quiet); font-size: .85rem; max-width: 75em; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: 0 0 .4rem; color: var(--ink); }
.swatch { width: 26px; height: 8px; margin-right: .4rem; vertical-align: middle; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); gap: 14px; align-items: start;
  grid-auto-flow: dense; }
figure, article { margin: 0; padding: 8px; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
.several { grid-column: 1 / -1; }
.several > img { display: inline-block; vertical-align: top; max-width: max(33% - 8px, min(100%, 300px)); margin-right: 6px; }
.several > .long { max-width: 100%; }
img { display: block; max-width: 100%; height: auto; margin: 0 0 6px; background: #ffffff; border-radius: 4px; }
summary { cursor: pointer; color: var(--quiet); padding: .3rem 0; }
footer { margin: 2.5rem 0 1rem; color: var(--quiet); font-size: .85rem; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  main { padding: 14px; }
  h1 { font-size: 1.3rem; }
  thead { display: none; }
  table, tbody, tr, td { display: block; width: 100%; }
  tr { border: 1px solid var(--line); border-radius: 6px; margin-bottom: .7rem; padding: .2rem 0; }
  td, td.number { display: flex; justify-content: space-between; gap: 1rem; text-align: right; white-space: normal; border: 0;
    padding: .16rem .7rem; min-width: 0; max-width: none; overflow-wrap: anywhere; }
  td::before { content: attr(data-label); color: var(--quiet); font-weight: 400; text-align: left; flex: none; max-width: 48%; }
  td:first-child { font-weight: 600; }
  td:empty { display: none; }
}
@media print { body { font-size: 11px; } section, figure, article { break-inside: avoid; } }
"""
_HALF = 600  # pixels
_ASIDE = "self"  # maps of a sequence onto itself come after those onto another, folded away


def page(contents: Contents) -> str:
    """The whole file."""
    plan = contents.records.plan
    parts = [
        _head(contents),
        _table(contents.results),
        *([] if contents.claim is None else [_table(contents.claim)]),
        _curves(contents),
        _pictures(contents),
        *map(_table, contents.further),
        f"<footer>{_text(f'{plan.file}, plan {plan.hash}. Base config: {plan.config}.')}</footer>",
    ]
    return PAGE.format(title=_text(f"{plan.name}: {plan.question}"), style=STYLE, body="\n".join(part for part in parts if part))


def _head(contents: Contents) -> str:
    """Question, verdict, and how far the sweep is."""
    plan, verdict = contents.records.plan, contents.verdict
    lines = [f'<p class="name">{_text(plan.name)}</p>', f"<h1>{_text(plan.question)}</h1>"]
    if verdict is None:
        lines.append(f'<p class="verdict">{_text(contents.outcome).capitalize()}.</p>')
    else:
        tone = {SUPPORTED: "yes", REFUTED: "no"}.get(verdict.outcome, "open")
        lines.append(f'<p class="verdict {tone}"><b>{_text(contents.outcome)}</b><span>Claim: {_text(verdict.statement)}</span></p>')
    if contents.unfinished:
        lines.append(f'<p class="unfinished">{_text(contents.unfinished)}</p>')
    return "\n".join(["<header>", *lines, f"<p>{_text(contents.extent)}.</p>", "</header>"])


def _table(table: Table) -> str:
    """A section with a table and its notes."""
    heads = "".join(f"<th{_side(table, place)}>{_text(column)}</th>" for place, column in enumerate(table.columns))
    rows = "\n".join(_row(table, place) for place in range(len(table.rows)))
    notes = "".join(f"<li>{_text(note)}</li>" for note in table.notes)
    below = f"\n<ul>{notes}</ul>" if notes else ""
    body = f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return _section(table.title, f'<div class="wide">{body}</div>{below}')


def _row(table: Table, place: int) -> str:
    kind = "strong" if place in table.strong else "weak" if place in table.weak else ""
    cells = "".join(
        f'<td{_side(table, column)} data-label="{_text(table.columns[column])}">{_text(cell)}</td>'
        for column, cell in enumerate(table.rows[place])
    )
    return f'<tr class="{kind}">{cells}</tr>' if kind else f"<tr>{cells}</tr>"


def _curves(contents: Contents) -> str:
    """Learning curves with one legend for all."""
    comparison, plan = contents.comparison, contents.records.plan
    wanted = curves.metrics(comparison, ("loss", plan.select["metric"], plan.measure["metric"]))
    panels = [(f"validation {metric}", curves.lines(comparison, "valid", metric)) for metric in wanted]
    panels = [("training loss", curves.lines(comparison, "train", "loss")), *panels]
    panels = [(title, lines) for title, lines in panels if any(line.points for line in lines)]
    if not panels:
        return ""
    drawn = "\n".join(f"<figure>{curves.draw(lines, title)}</figure>" for title, lines in panels)
    names = "".join(f"<li>{_swatch(place)}{_text(row.name)}</li>" for place, row in enumerate(comparison.rows))
    note = "Lines: mean over the seeds that reached the step. Bands: from the lowest to the highest seed."
    body = f'<ul class="legend">{names}</ul>\n<div class="figures">{drawn}</div>\n<ul><li>{note}</li></ul>'
    return _section("Learning curves", body)


def _swatch(place: int) -> str:
    """A short piece of the line of a row."""
    ink, style = curves.colour(place)
    dashes = {"--": "6 3", ":": "2 3", "-.": "7 3 2 3"}.get(style)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<svg class="swatch" viewBox="0 0 26 8"><path d="M1 4H25" stroke="{ink}" stroke-width="3"{dash}/></svg>'


def _pictures(contents: Contents) -> str:
    """Where the chosen trials of the first seed look, for the first test sentence."""
    blocks = []
    for row in contents.comparison.rows:
        pictures = row.records[0].pictures if contents.comparison.frozen and row.records else {}
        first = {name: path for name, path in pictures.items() if _ASIDE not in name} or pictures
        rest = {name: path for name, path in pictures.items() if name not in first}
        if first:
            more = f"<details><summary>self-attention</summary>{_images(row.name, rest)}</details>" if rest else ""
            several = ' class="several"' if len(first) > 1 or any(map(_is_long, first.values())) else ""
            blocks.append(f"<article{several}><h3>{_text(row.name)}</h3>{_images(row.name, first)}{more}</article>")
    if not blocks:
        return ""
    note = f"First example of the test split, seed {contents.records.plan.seeds[0]}, best parameters on validation. Rows look at columns."
    return _section("Attention", f'<div class="figures">{"".join(blocks)}</div>\n<ul><li>{note}</li></ul>')


def _images(variant: str, pictures: Mapping[str, Path]) -> str:
    found = []
    for name, path in pictures.items():
        kind = ' class="long"' if _is_long(path) else ""
        data = base64.b64encode(path.read_bytes()).decode()
        found.append(f'<img{kind} alt="{_text(f"{variant}: {name}")}" src="data:image/png;base64,{data}">')
    return "".join(found)


def _is_long(picture: Path) -> bool:
    """Whether a PNG is too wide to be read in half a page; its width stands in its head."""
    with picture.open("rb") as file:
        return int.from_bytes(file.read(20)[16:]) > _HALF


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{body}\n</section>"


def _side(table: Table, column: int) -> str:
    return ' class="number"' if column in table.numbers else ""


def _text(text: str) -> str:
    return html.escape(text).replace(" %", "&nbsp;%")
