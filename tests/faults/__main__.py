"""python -m tests.faults: seeds every fault of the list, one at a time, and says which of them the
tests notice (docs/faults.md).
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.flags import add_flags
from attnlab.progress import Progress, clock, table
from tests.faults.fault import Fault, Stale
from tests.faults.listed import DOCS, FAULTS, with_table
from tests.faults.runner import DECIDED, Result, Session, judge_all

REACH = (
    "the tests to run until one fails: those that a fault names, all of its part of the package"
    " (default), or the whole default run (with ATTNLAB_CASES=all the full mode)"
)
SWITCHES = {
    "--fresh": "judge again what was caught in FILE",
    "--list": "print the list and stop",
    "--docs": "write the score stored in FILE to docs/faults.md and stop",
}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=(__doc__ or "").partition(": ")[2]
    )
    meaning = "faults whose name, 'file: what', has this text"
    add_flags(parser, {"--only=TEXT": meaning}, default="")
    add_flags(parser, {"--jobs=JOBS": "faults at a time (default 1)"}, type=int, default=1)
    meaning = "time for each fault (default 300)"
    add_flags(parser, {"--limit=SECONDS": meaning}, type=float, default=300.0)
    reaches = ("named", "part", "everything")
    parser.add_argument("--reach", choices=reaches, default="part", help=REACH)
    meaning = "JSON to write to, and to go on from: what was caught there stays so"
    add_flags(parser, {"--results=FILE": meaning}, type=Path)
    add_flags(parser, SWITCHES)
    return parser.parse_args(given)


def read_results(file: Path | None, fresh: bool) -> dict[str, Result]:
    """Results stored before, by the name of the fault. What a sample of tests catches is caught by
    all of them; what it lets pass is judged again in the full mode.
    """
    if file is None or fresh or not file.is_file():
        return {}
    return {row["name"]: Result(**row) for row in json.loads(file.read_text())}


def is_settled(fault: Fault, results: dict[str, Result]) -> bool:
    """Whether a fault was caught, and neither it nor the code around it has changed since; what
    survived is judged again.
    """
    before = results.get(fault.name)
    try:
        return before is not None and before.status == "caught" and before.digest == fault.digest()
    except Stale:
        return False


def store(file: Path | None, results: dict[str, Result]) -> None:
    """Writes the results, all or nothing."""
    if file is not None:
        draft = file.with_name(f"{file.name}.new")
        rows = [dataclasses.asdict(result) for result in results.values()]
        draft.write_text(json.dumps(rows, indent=1))
        draft.replace(file)


def judge_missing(faults: list[Fault], options: argparse.Namespace) -> dict[str, Result]:
    """Judges what was not caught yet; results of all the faults asked for."""
    results = read_results(options.results, options.fresh)
    rest = [fault for fault in faults if not is_settled(fault, results)]
    with Progress(len(faults), len(faults) - len(rest), every=10) as progress:
        session = Session(options.limit, options.reach)
        if rest:
            progress.note(f"{len(rest)} faults to judge")
        for done, (fault, result) in enumerate(
            judge_all(session, rest, options.jobs), len(faults) - len(rest) + 1
        ):
            results[fault.name] = result
            store(options.results, results)
            progress.note(
                f"{result.status:9} {result.seconds:6.1f} s  {fault.name} "
                f" {result.detail or result.test.partition('::')[2]}"
            )
            progress.update(done, step_seconds=result.seconds / options.jobs)
    return {fault.name: results[fault.name] for fault in faults}


def report(faults: list[Fault], results: dict[str, Result]) -> int:
    """Prints the score and what is not as the list says; the exit status."""
    rooms = [*dict.fromkeys(fault.room for fault in faults), "all"]
    rows = []
    for room in rooms:
        statuses = [results[fault.name].status for fault in faults if room in (fault.room, "all")]
        counts = [*map(statuses.count, DECIDED)]
        rows.append((room, len(statuses), *counts, len(statuses) - sum(counts)))
    table("Seeded faults", ("part", "faults", "caught", "survived", "undecided"), rows)
    listed = {fault.name: "survived" if fault.survives else "caught" for fault in faults}
    wrong = [fault for fault in faults if results[fault.name].status != listed[fault.name]]
    if wrong:
        lines = [_line(fault, results[fault.name]) for fault in wrong]
        table("Not as the list says", ("fault", "became", "why"), lines)
    spent = sum(result.seconds for result in results.values())
    print(f"{rows[-1][2]} of {rows[-1][1]} caught, in {clock(spent)}")
    return 1 if wrong else 0


def _line(fault: Fault, result: Result) -> tuple[str, str, str]:
    listed = "the list calls it a survivor" if fault.survives else ""
    return fault.name, result.status, result.detail or listed


def main(given: Sequence[str] | None = None) -> int:
    """The command; 0 if everything is as the list says."""
    options = arguments(given)
    faults = [fault for fault in FAULTS if options.only in fault.name]
    if options.docs:
        DOCS.write_text(with_table(DOCS.read_text(), read_results(options.results, False)))
        return 0
    if not faults:
        print(f"no fault has {options.only!r} in its name; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        rows = [(fault.name, " | ".join(fault.tests)) for fault in faults]
        table("Seeded faults", ("fault", "asked first"), rows)
        return 0
    return report(faults, judge_missing(faults, options))


if __name__ == "__main__":
    sys.exit(main())
