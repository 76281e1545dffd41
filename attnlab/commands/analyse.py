"""`analyse RUN`: what its heads look at, and what each layer and head is worth."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.commands import session
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.analysis.inside import Analysis

SHOWN = 3  # examples of the atlas
CAUTION = (
    "A cost is what this run loses on this split without a part, while all others stay: what two"
    " parts do alike costs nothing until both are off. Another seed has other heads."
)
PLACE = ("layer", "head")
COLUMNS = (*PLACE, "zero [95 %]", "mean", "resample", "uniform", "importance")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `analyse` to its parser."""
    parser.add_argument("--split", default="valid", help="train, valid or test (default: valid)")
    parser.add_argument(
        "--examples", type=int, default=100, metavar="N", help="its first N (default: 100)"
    )
    parser.add_argument("--conllu", metavar="FILE", help="a treebank, for syntactic scores")
    parser.add_argument(
        "--coreference", metavar="FILE", help='lines {"text": ..., "clusters": [[[0, 3], ...]]}'
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="of page and tables (default: <workdir>/analysis)"
    )
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes `analysis.html`, `atlas.html` with `maps.npz`, `heads.csv` and `costs.csv`, and prints
    the costs, what does not apply, and the paths.
    """
    from attnlab.data import SPLITS
    from attnlab.errors import nearest

    if arguments.split not in SPLITS:
        raise UserError(f"--split={arguments.split}; {nearest(arguments.split, SPLITS)}")
    if arguments.examples < 1:
        raise UserError(f"--examples={arguments.examples}: expected 1 or more")
    stored = session.stored_run(arguments)
    folder = Path(arguments.output) if arguments.output else stored.workdir / "analysis"
    session.check_folder("--output", folder)
    trained = session.open_run(stored, (arguments.split,))
    from attnlab.analysis.heads import save_records
    from attnlab.progress import table
    from attnlab.records.files import write_atomic

    split = arguments.split
    result = trained.analyse(split, arguments.examples, arguments.conllu, arguments.coreference)
    session.print_notes(result.notes)
    title = f"{trained.workdir}, {result.examples} examples of {split}: change of the loss without"
    if result.costs:
        table(title, COLUMNS, costs(result))
    folder.mkdir(parents=True, exist_ok=True)
    paths = _write_atlas(trained, split, folder)
    for name, records in (("heads", result.heads), ("costs", result.costs)):
        if records:
            save_records(path := folder / f"{name}.csv", records)
            paths.append(path)
    write_atomic(path := folder / "analysis.html", _page(str(trained.workdir), result, paths))
    print("\n".join(map(str, [path, *paths])))
    return 0


def costs(result: Analysis) -> list[tuple[str, ...]]:
    """Returns the rows of the table of costs, in the order of a pass: a layer, then its heads."""
    from attnlab.pages.tables import mean, number

    by_part: dict[Any, dict[str, Any]] = {}
    for cost in result.costs:
        part = cost["place"].rpartition("/")[0], -1 if cost["head"] is None else cost["head"]
        by_part.setdefault(part, {})[cost["kind"]] = cost
    scores = {(x["map"], x["head"]): x.get("importance", math.nan) for x in result.heads}
    order = {layer: place for place, (layer, _) in enumerate(by_part)}
    rows = []
    for part in sorted(by_part, key=lambda part: (order[part[0]], part[1])):
        kinds = {name: x for name, x in by_part[part].items() if not math.isnan(x["cost"])}
        zero = kinds.get("zero")
        cells = [mean(zero["cost"], (zero["low"], zero["high"])) if zero else number(None)]
        for kind in ("mean", "resample", "uniform"):
            cells.append(number(kinds[kind]["cost"] if kind in kinds else None))
        score = scores.get(part, math.nan)
        cells.append(number(None if math.isnan(score) else score))
        rows.append((part[0][-30:], "all" if part[1] < 0 else str(part[1]), *cells))
    return rows


def _write_atlas(trained: Any, split: str, folder: Path) -> list[Path]:
    """Writes an atlas of the first examples, and returns its files; [] without attention."""
    from attnlab.analysis.atlases import MEANINGS, atlas_example
    from attnlab.analysis.inside import READ
    from attnlab.pages.atlas import ARRAYS, write_atlas
    from attnlab.tasks.maps import attention_maps

    task = trained.with_split(split)
    shown = [
        (x, attention_maps(task, trained.params, x, READ)) for x in task.map_examples(split, SHOWN)
    ]
    examples = [atlas_example(task, example, maps) for example, maps in shown if maps]
    if examples:
        write_atlas(folder / "atlas.html", str(trained.workdir), examples, MEANINGS)
    return [folder / "atlas.html", folder / ARRAYS] if examples else []


def _page(title: str, result: Analysis, files: Sequence[Path]) -> str:
    """Returns the text of `analysis.html`."""
    from attnlab.pages import html
    from attnlab.pages.atlas import CAUTION as OF_MAPS
    from attnlab.pages.tables import Table, number

    def made(name: str, records: Sequence[dict[str, Any]], *notes: str) -> str:
        columns = tuple(records[0]) if records else ()
        rows = [
            tuple(
                number(x)
                if isinstance(x, float) and math.isfinite(x)
                else "-"
                if isinstance(x, float)
                else str(x)
                for x in record.values()
            )
            for record in records
        ]
        numbers = frozenset(
            n for n, name in enumerate(columns) if isinstance(records[0][name], int | float)
        )
        return html.table(Table(name, columns, tuple(rows), numbers, notes=notes)) if rows else ""

    rows = tuple(costs(result))
    off = "Change of the loss without each layer and head"
    links = "".join(f'<li><a href="{path.name}">{path.name}</a></li>' for path in files)
    parts = [
        f"<header><h1>{html.literal(f'Inside {title}')}</h1>"
        f'<p class="verdict open">{html.literal(OF_MAPS)}</p></header>',
        f"<ul>{links}</ul>",
        html.table(Table(off, COLUMNS, rows, frozenset(range(1, 7)), notes=(CAUTION,)))
        if rows
        else "",
        made("Heads", result.heads),
        made("Heads switched off one by one", result.pruning),
        made("Syntax", result.syntax),
        made("Coreference", result.coreference),
        made("Gradient by distance", result.distance),
        html.section("Not applicable", html.notes(*result.notes)) if result.notes else "",
    ]
    return html.whole(f"Inside {title}", parts)
