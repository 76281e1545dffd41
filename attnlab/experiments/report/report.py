"""The report of a sweep, a pure function of its records: files, and a table for the terminal; and
the page of a sweep at work, `status.html`, which a browser reads anew while it is open. Nothing here
trains, scores or reads data. The same records give the same bytes.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from attnlab.errors import UserError
from attnlab.experiments.report.contents import Contents, gather
from attnlab.experiments.report.export import as_csv, as_json
from attnlab.experiments.report.page import page
from attnlab.experiments.report.tables import paper
from attnlab.experiments.report.trials import as_wide_csv
from attnlab.experiments.run import SILENT_AT_FIRST, Seen
from attnlab.pages.tables import Table, latex, literal, markdown
from attnlab.progress import table
from attnlab.records.files import write_atomic
from attnlab.records.locks import is_elsewhere, is_held

EVERY = 10
"""Seconds between two pages, and between two readings of a browser."""
ALONE = 60.0
"""Seconds without a launcher or a trial at work after which nobody is taken to go on."""
_SHARE = 20  # times as long as the making of a page is the time to the next one, at least


def write(
    directory: Path,
    method: str = "model",
    *,
    tex: bool = False,
    columns: Sequence[str] = (),
    stream: TextIO | None = None,
) -> Contents:
    """Writes the report of a sweep into its folder (report.md, .csv, .html, .json, trials.csv, on
    request report.tex), prints its main tables and returns its contents; raises `UserError`, for
    example for a damaged record or if a file is a link.

    Args:
      directory: the sweep's folder.
      method: how intervals of means are made: "model" or "bootstrap".
      tex: write `report.tex` too, see `paper`.
      columns: those of the main table that `report.tex` shall have; () for its own three.
      stream: where the tables are printed, stdout unless given.

    Raises:
      UserError: there is no sweep, a damaged record, no such column, a link where a file should be,
        a full disk; nothing is half written.
    """
    contents = gather(directory, method)
    made = {"md": document, "csv": as_csv, "html": page, "json": as_json}
    written = {f"report.{ending}": make(contents) for ending, make in made.items()}
    if tex:
        written["report.tex"] = latex(paper(contents.records, contents.comparison, columns))
    written["trials.csv"] = as_wide_csv(contents.records)
    for path in (directory / name for name in written):
        if path.is_symlink():
            raise UserError(
                f"{path} is a link to {path.readlink()}, and a report is not written through one;"
                " delete it"
            )
    for name, text in written.items():
        write_atomic(directory / name, text)
    show(contents, stream)
    print(f"report: {', '.join(str(directory / name) for name in written)}", file=stream)
    return contents


def document(contents: Contents) -> str:
    """Returns the report as Markdown text: question, warnings, extent, claim with outcome, and all
    tables.
    """
    plan, verdict = contents.records.plan, contents.verdict
    warnings = (f"* **Warning:** {literal(warning.text)}" for warning in contents.warnings)
    paragraphs = [
        f"# {literal(plan.question)}",
        "\n".join(warnings),
        f"*{literal(plan.name)}*: {literal(contents.extent)}.",
        f"**{literal(contents.unfinished)}**" if contents.unfinished else "",
        f"Claim: {literal(verdict.statement)}" if verdict else "",
        f"**{literal(contents.outcome)}**" if verdict else f"{contents.outcome.capitalize()}.",
        *(markdown(part)[:-1] for _, part in contents.parts if isinstance(part, Table)),
        "Learning curves and attention pictures: [report.html](report.html).",
        literal(f"{plan.file}, plan {plan.hash}. Base config: {plan.config}."),
    ]
    return "".join(f"{paragraph}\n\n" for paragraph in paragraphs if paragraph)[:-1]


def show(contents: Contents, stream: TextIO | None = None) -> None:
    """Prints to `stream` (stdout if None) a report's question, warnings, extent, the main table and
    that of effects in parts that fit a terminal, sentences on effects, claim if any, and verdict.
    """
    plan = contents.records.plan
    first = (f"warning: {warning.text}" for warning in contents.warnings)
    print(f"\n{plan.question}", *first, contents.extent, sep="\n", file=stream)
    if contents.unfinished:
        print(contents.unfinished, file=stream)
    for section, part in contents.parts:
        if section.narrow is None or not isinstance(part, Table):
            continue
        for narrow in section.narrow(part, plan.baseline):
            print(file=stream)
            table(narrow.title, narrow.columns, narrow.rows, stream, narrow.numbers)
    print(*(f"\n{effect.sentence}" for effect in contents.effects), sep="", file=stream)
    if contents.verdict is not None:
        print(f"claim:   {contents.verdict.statement}", file=stream)
    print(f"verdict: {contents.outcome}", file=stream)


def keep_page(directory: Path) -> Iterator[str]:
    """Writes the report so far to `status.html` in the folder of a sweep, `EVERY` seconds or more
    apart, and yields one line of text on its extent each time, until it is complete, or no process
    holds it and its trials have settled or had no work for `ALONE` seconds.
    """
    over, busy = False, time.monotonic()
    while not over:
        began = time.monotonic()
        contents = gather(directory)
        settled = all(record.seen.settled for record in contents.records.wanted)
        held = is_held(directory)
        if held or any(_at_work(record.seen, directory) for record in contents.records.trials):
            busy = began
        left = settled or began - busy > ALONE
        over = contents.records.complete or (left and not held)
        anew = "" if over else f'<meta http-equiv="refresh" content="{EVERY}">\n'
        text = page(contents).replace("<title>", f"{anew}<title>", 1)
        write_atomic(directory / "status.html", text)
        yield contents.extent
        time.sleep(0 if over else max(EVERY, _SHARE * (time.monotonic() - began)))


def _at_work(seen: Seen, directory: Path) -> bool:
    """Returns whether a process of this machine works on a trial, or one of another machine has
    taken it and written something lately.
    """
    lately = (seen.age(time.time()) or 0.0) < SILENT_AT_FIRST
    return seen.state == "running" or (lately and is_elsewhere(seen.trial.workdir(directory)))
