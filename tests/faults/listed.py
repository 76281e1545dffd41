"""All seeded faults, and what stands about them in docs/faults.md."""

import re
from collections.abc import Mapping, Sequence

from tests.faults.fault import LISTS, ROOT, Fault, read
from tests.faults.runner import DECIDED, Result

FAULTS: list[Fault] = [fault for path in sorted(LISTS.glob("**/*.txt")) for fault in read(path)]

DOCS = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- generated: python -m tests.faults --results FILE --docs -->", "<!-- end -->"


Figures = tuple[int, int, int, int]  # faults, judged, caught by the sample, caught in the full mode


def score(results: Mapping[str, Result]) -> dict[str, Figures]:
    """The figures of each part of the package, and of all together under "all"; results by the
    names of faults.
    """
    rooms = {fault.room: [*map(results.get, _names(fault.room))] for fault in FAULTS}
    rooms["all"] = [results.get(fault.name) for fault in FAULTS]
    return {room: _figures(of_room) for room, of_room in rooms.items()}


def _names(room: str) -> list[str]:
    return [fault.name for fault in FAULTS if fault.room == room]


def _figures(results: Sequence[Result | None]) -> Figures:
    judged = [result for result in results if result is not None and result.status in DECIDED]
    caught = [result for result in judged if result.status == "caught"]
    return len(results), len(judged), sum(result.sampled for result in caught), len(caught)


def table(results: Mapping[str, Result], before: Mapping[str, Figures] | None = None) -> str:
    """The generated part of docs/faults.md: the score, what the sample misses with the test that
    catches it in the full mode, and the survivors with their reasons.

    Args:
      results: see `score`.
      before: the figures of parts as the page has them. A part of which nothing was judged now
        keeps them, if it has as many faults as then.
    """
    parts = score(results)
    del parts["all"]
    for room, figures in (before or {}).items():
        if room in parts and parts[room][:2] == (figures[0], 0):
            parts[room] = figures
    seeded, judged, sampled, caught = map(sum, zip(*parts.values(), strict=True))
    lines = [
        "| part | faults | judged | caught by the default run | caught in the full mode |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {room} | {' | '.join(map(str, figures))} |"
        for room, figures in {**parts, "all": (seeded, judged, sampled, caught)}.items()
    ]
    of_sample, of_all = (100 * count / max(judged, 1) for count in (sampled, caught))
    lines += [
        "",
        f"{sampled} of {judged} caught by the default run, {of_sample:.1f} %; {caught} in the full"
        f" mode, {of_all:.1f} %; {seeded - judged} of {seeded} not judged.",
        "",
    ]
    judgements = [(fault, results.get(fault.name)) for fault in FAULTS]
    lines += [
        f"* missed by the default run: {fault.name}: caught by `{result.test}`"
        for fault, result in judgements
        if result is not None and result.status == "caught" and not result.sampled
    ]
    survivors = [
        fault
        for fault, result in judgements
        if fault.survives or (result is not None and result.status == "survived")
    ]
    lines += [
        f"* survived: {fault.name} (`{fault.old}` becomes `{fault.new}`):"
        f" {fault.survives or 'no reason known'}"
        for fault in survivors
    ]
    return "\n".join([*lines, *([] if survivors else ["", "No survivors."])])


def figures_of(page: str) -> dict[str, Figures]:
    """The figures of the parts of the package, as a page has them."""
    rows = re.findall(r"^\| (\S+) \|((?: \d+ \|){4})$", page, re.MULTILINE)
    return {room: tuple(map(int, re.findall(r"\d+", figures))) for room, figures in rows}  # type: ignore[misc]


def with_table(page: str, results: Mapping[str, Result]) -> str:
    """The page with its generated part made anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(results, figures_of(page))}\n\n{END}{rest.partition(END)[2]}"
