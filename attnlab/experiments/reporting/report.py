"""The report of a sweep, a pure function of its records: `report.md`, `report.csv`, `report.html`, `report.json`, and a table to look at.

Nothing here trains, scores or reads data; the records are those that trials, choice and finals have left in the sweep's folder. The
same records give the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from attnlab.experiments.reporting import tables
from attnlab.experiments.reporting.contents import Contents, gather
from attnlab.experiments.reporting.export import as_csv, as_json
from attnlab.experiments.reporting.formats import latex, literal, markdown
from attnlab.experiments.reporting.page import page
from attnlab.files import write_atomic
from attnlab.progress import table


def write(directory: Path, method: str = "t", *, tex: bool = False, stream: TextIO | None = None) -> Contents:
    """Write the report of a sweep into its folder and print it.

    Args:
      directory: the sweep's folder.
      method: how intervals are made, a name of `statistics.INTERVALS`.
      tex: write `report.tex` too, the main table.
      stream: where the tables are printed, stdout unless given.

    Raises:
      UserError: there is no sweep, a damaged record, a full disk; nothing is half written.
    """
    contents = gather(directory, method)
    made = {"report.md": document, "report.csv": as_csv, "report.html": page, "report.json": as_json}
    written = {name: make(contents) for name, make in made.items()}
    if tex:
        written["report.tex"] = latex(contents.results)
    for name, text in written.items():
        write_atomic(directory / name, text)
    show(contents, stream)
    print(f"report: {', '.join(str(directory / name) for name in written)}", file=stream)
    return contents


def document(contents: Contents) -> str:
    """The report as Markdown."""
    plan, verdict = contents.records.plan, contents.verdict
    lines = [f"# {literal(plan.question)}", "", f"*{literal(plan.name)}*: {literal(contents.extent)}.", ""]
    if contents.unfinished:
        lines += [f"**{literal(contents.unfinished)}**", ""]
    if verdict is None:
        lines += [f"{contents.outcome.capitalize()}.", ""]
    else:
        lines += [f"Claim: {literal(verdict.statement)}", "", f"**{literal(contents.outcome)}**", ""]
    shown = [contents.results, *([] if contents.claim is None else [contents.claim]), *contents.further]
    lines += [markdown(one) for one in shown]
    lines += ["Learning curves and attention pictures: [report.html](report.html).", ""]
    lines += [literal(f"{plan.file}, plan {plan.hash}. Base config: {plan.config}."), ""]
    return "\n".join(lines)


def show(contents: Contents, stream: TextIO | None = None) -> None:
    """Print the question, the results and the verdict."""
    plan = contents.records.plan
    print(f"\n{plan.question}\n{contents.extent}", file=stream)
    if contents.unfinished:
        print(contents.unfinished, file=stream)
    for one in tables.narrow(contents.results, plan.baseline):
        print(file=stream)
        table(one.title, one.columns, one.rows, stream)
    print(file=stream)
    if contents.verdict is not None:
        print(f"claim:   {contents.verdict.statement}", file=stream)
    print(f"verdict: {contents.outcome}", file=stream)
