"""All seeded faults, and what stands about them in docs/faults.md."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.faults.fault import LISTS, ROOT, Fault, read

FAULTS: list[Fault] = [fault for path in sorted(LISTS.glob("**/*.txt")) for fault in read(path)]

DOCS = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- generated: python -m tests.faults --results FILE --docs -->", "<!-- end -->"


def score(status: Mapping[str, str]) -> list[tuple[str, int, int, int]]:
    """(part of the package, faults, judged, caught), and all together; what became of faults by
    their names.
    """
    rows = []
    for room in [*dict.fromkeys(fault.room for fault in FAULTS), "all"]:
        became = [status.get(fault.name, "") for fault in FAULTS if room in (fault.room, "all")]
        rows.append(
            (
                room,
                len(became),
                sum(map(became.count, ("caught", "survived"))),
                became.count("caught"),
            )
        )
    return rows


def table(
    status: Mapping[str, str], before: Mapping[str, tuple[int, int, int]] | None = None
) -> str:
    """The generated part of docs/faults.md: the score, what was not judged, and the survivors with
    their reasons.

    Args:
      status: see `score`.
      before: (faults, judged, caught) of parts as the page has them. A part of which nothing was
        judged now keeps them, if it has as many faults as then.
    """
    parts = {room: tuple(figures) for room, *figures in score(status)[:-1]}
    for room, figures in (before or {}).items():
        if room in parts and parts[room][:2] == (figures[0], 0):
            parts[room] = figures
    seeded, judged, caught = map(sum, zip(*parts.values(), strict=True))
    lines = ["| part | faults | judged | caught |", "|---|---:|---:|---:|"]
    lines += [
        f"| {room} | {' | '.join(map(str, figures))} |"
        for room, figures in {**parts, "all": (seeded, judged, caught)}.items()
    ]
    lines += [
        "",
        (
            f"{caught} of {judged} caught, {100 * caught / max(judged, 1):.1f} %; {seeded - judged}"
            f" of {seeded} not judged."
        ),
        "",
    ]
    survivors = [
        fault for fault in FAULTS if fault.survives or status.get(fault.name) == "survived"
    ]
    lines += [
        f"* survived: {fault.name} (`{fault.old}` becomes `{fault.new}`):"
        f" {fault.survives or 'no reason known'}"
        for fault in survivors
    ]
    return "\n".join([*lines, *([] if survivors else ["No survivors."])])


def figures_of(page: str) -> dict[str, tuple[int, int, int]]:
    """Part of the package to (faults, judged, caught), as a page has them."""
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    return {room: (int(seeded), int(judged), int(caught)) for room, seeded, judged, caught in rows}


def with_table(page: str, status: Mapping[str, str]) -> str:
    """The page with its generated part made anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(status, figures_of(page))}\n\n{END}{rest.partition(END)[2]}"
