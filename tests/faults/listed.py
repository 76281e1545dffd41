"""All seeded faults, and what stands about them in docs/faults.md."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults.fault import LISTS, ROOT, Fault, read

FAULTS: list[Fault] = [fault for path in sorted(LISTS.glob("**/*.txt")) for fault in read(path)]

DOCS = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- generated: python -m tests.faults --results FILE --docs -->", "<!-- end -->"


def score(status: Mapping[str, str]) -> list[tuple[str, int, int, int]]:
    """(part of the package, faults, judged, caught), and all together; what became of faults by their names."""
    rows = []
    for room in [*dict.fromkeys(fault.room for fault in FAULTS), "all"]:
        became = [status.get(fault.name, "") for fault in FAULTS if room in (fault.room, "all")]
        rows.append((room, len(became), sum(map(became.count, ("caught", "survived"))), became.count("caught")))
    return rows


def table(status: Mapping[str, str]) -> str:
    """The generated part of docs/faults.md: the score, what was not judged, and the survivors with their reasons."""
    rows = score(status)
    *_, (_, seeded, judged, caught) = rows
    lines = ["| part | faults | judged | caught |", "|---|---:|---:|---:|"]
    lines += [f"| {room} | {' | '.join(map(str, figures))} |" for room, *figures in rows]
    lines += ["", f"{caught} of {judged} caught, {100 * caught / max(judged, 1):.1f} %; {seeded - judged} of {seeded} not judged.", ""]
    survivors = [fault for fault in FAULTS if fault.survives or status.get(fault.name) == "survived"]
    lines += [
        f"* survived: {fault.name} (`{fault.old}` becomes `{fault.new}`): {fault.survives or 'no reason known'}" for fault in survivors
    ]
    return "\n".join([*lines, *([] if survivors else ["No survivors."])])


def with_table(text: str, status: Mapping[str, str]) -> str:
    """The page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(status)}\n\n{END}{rest.partition(END)[2]}"
