"""`analyse RUN`: what its heads look at, and what each layer and head is worth."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.commands import session
from attnlab.data import SPLITS
from attnlab.errors import UserError, nearest
from attnlab.flags import add_flags, add_number
from attnlab.pages import html
from attnlab.pages.tables import Table, mean, number
from attnlab.progress import table
from attnlab.records.files import write_atomic

if TYPE_CHECKING:
    from attnlab.analysis.inside import Analysis

FLAGS = {
    "--conllu=FILE": "a treebank, for syntactic scores",
    "--coreference=FILE": 'lines {"text": ..., "clusters": [[[0, 3], ...]]}',
    "--output=FOLDER": "of page and tables (default: <workdir>/analysis)",
}
SHOWN = 3  # examples of the atlas
LONG = 60  # rows of a table that is folded
CAUTION = (
    "A cost is what this run loses on this split without a part, while all others stay: what two"
    " parts do alike costs nothing until both are off. Another seed has other heads."
)
PICTURES = (
    ("costs", "by how much the loss rises without each head and layer"),
    ("pruning", "the loss while heads are switched off, the least important first"),
)
# On a phone the tables of a page are blocks, a line for each cell: too long for many numbers.
STYLE = """\
.wide img { max-width: none; }
@media (max-width: 700px) {
  .wide { max-height: 70vh; overflow: auto; border: 1px solid var(--line); border-radius: 6px; }
  .wide table { display: table; width: max-content; } .wide thead { display: table-header-group; }
  .wide tbody { display: table-row-group; } .wide tr { display: table-row; }
  .wide td, .wide th { display: table-cell; width: auto; padding: .3rem .5rem; text-align: right; white-space: nowrap; }
  .wide td { border-bottom: 1px solid var(--line); } .wide td::before { content: none; }
  .wide th { position: sticky; top: 0; z-index: 1; background: var(--ground); }
  .wide td:first-child { position: sticky; left: 0; max-width: 9em; text-align: left; white-space: normal; background: var(--ground); }
}
"""
OTHERS = {
    "importance": "| d loss / d gate | of the head, its layer's norm 1",
    "agreement": "Kendall's tau between the weights that a token gets and its gradient",
    "uniform_effect": "how far answers move, 0 to 1, when the layer's weights are made uniform",
    "permuted_effect": "the same, when they are permuted",
    "induction_score": "weight on what followed this token in the first copy of random text",
    "best_offset": "where the largest weight is most often, key minus query",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `analyse` to its parser: `--split`, `--examples`, `--conllu`,
    `--coreference`, `--output`, `--accept-changed-code`.
    """
    parser.add_argument("--split", default="valid", help="train, valid or test (default: valid)")
    add_number(parser, "--examples", 1, 100_000, "its first N (default: 100)", default=100)
    add_flags(parser, FLAGS)
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Analyses the run in `--workdir` on `--split`: writes `analysis.html` and, for what the run
    has, `atlas.html` with `maps.npz`, `heads.csv`, `costs.csv`, `costs.png` and `pruning.png` into
    `--output`, prints the costs, notes on what does not apply, and the paths, and returns 0.
    """
    if arguments.split not in SPLITS:
        raise UserError(f"--split={arguments.split}; {nearest(arguments.split, SPLITS)}")
    stored = session.stored_run(arguments)
    folder = Path(arguments.output) if arguments.output else stored.workdir / "analysis"
    session.check_folder("--output", folder)
    trained = session.open_run(stored, (arguments.split,))
    from attnlab.analysis.heads import save_records

    split = arguments.split
    result = trained.analyse(split, arguments.examples, arguments.conllu, arguments.coreference)
    session.print_notes(result.notes)
    title = f"{trained.workdir}, {result.examples} examples of {split}: change of the loss without"
    if costs := costs_by_part(result):
        table(title, [*costs[0]], [[*record.values()] for record in costs])
    folder.mkdir(parents=True, exist_ok=True)
    paths = _write_atlas(trained, split, folder)
    for name, records in (("heads", result.heads), ("costs", result.costs)):
        if records:
            save_records(path := folder / f"{name}.csv", records)
            paths.append(path)
    paths += _draw(result, folder)
    write_atomic(path := folder / "analysis.html", _page(str(trained.workdir), result, paths))
    print("\n".join(map(str, [path, *paths])))
    return 0


def costs_by_part(result: "Analysis") -> list[dict[str, str]]:
    """Returns the rows of the table of costs, one for each layer and each of its heads in the order
    of a pass: the texts of the columns "layer", "head", "zero", "mean", "resample" and "uniform".
    """
    by_part: dict[Any, dict[str, Any]] = {}
    for cost in result.costs:
        part = cost["place"].rpartition("/")[0], -1 if cost["head"] is None else cost["head"]
        by_part.setdefault(part, {})[cost["kind"]] = cost
    layers = [*dict.fromkeys(layer for layer, _ in by_part)]
    rows = []
    for part in sorted(by_part, key=lambda part: (layers.index(part[0]), part[1])):
        row = {"layer": part[0][-25:], "head": "all" if part[1] < 0 else str(part[1])}
        for kind in ("zero", "mean", "resample", "uniform"):
            row[kind] = _cell(by_part[part].get(kind, {}).get("cost", math.nan))
        if row["zero"] != _cell(math.nan):
            zero = by_part[part]["zero"]
            row["zero"] = mean(zero["cost"], (zero["low"], zero["high"]))
        rows.append(row)
    return rows


def _cell(value: Any) -> str:
    """Returns a value as the text of a table cell: a float with four digits ("-" if it is not
    finite), anything else by `str`.
    """
    if not isinstance(value, float):
        return str(value)
    return number(value if math.isfinite(value) else None)


def _write_atlas(trained: Any, split: str, folder: Path) -> list[Path]:
    """Writes the attention maps of the first examples of a split as `atlas.html` and `maps.npz`
    into `folder`, and returns their paths; without attention writes nothing and returns [].
    """
    from attnlab.api.maps import MEANINGS, atlas_example
    from attnlab.pages.atlas import ARRAYS, write_atlas
    from attnlab.tasks.maps import CHEAP_MAPS, attention_maps

    task = trained.with_split(split)
    shown = [
        (x, attention_maps(task, trained.params, x, CHEAP_MAPS))
        for x in task.map_examples(split, SHOWN)
    ]
    examples = [atlas_example(task, example, maps) for example, maps in shown if maps]
    if examples:
        write_atlas(folder / "atlas.html", str(trained.workdir), examples, MEANINGS)
    return [folder / "atlas.html", folder / ARRAYS] if examples else []


def _draw(result: "Analysis", folder: Path) -> list[Path]:
    """Draws what layers and heads cost as `costs.png`, and the loss while heads go one by one as
    `pruning.png`, into `folder`, and returns the paths of those for which `result` has numbers.
    """
    from attnlab.analysis.figures import save_costs, save_curve

    paths = {name: folder / f"{name}.png" for name, _ in PICTURES if getattr(result, name)}
    if "costs" in paths:
        save_costs(paths["costs"], result.costs, title="change of the loss without it")
    if "pruning" in paths:
        points = [(record["heads_off"], record["loss"]) for record in result.pruning]
        words = "heads go one by one, the least important first", "heads switched off", "loss"
        save_curve(paths["pruning"], {"without these heads": points}, *words)
    return [*paths.values()]


def _page(title: str, result: "Analysis", files: Sequence[Path]) -> str:
    """Returns the HTML text of the page `analysis.html`: the heading `title`, links to `files`, a
    table for each kind of result (costs, heads, pruning, syntax, ...) and the notes of `result`.
    """
    from attnlab.api.maps import MEANINGS
    from attnlab.pages.atlas import CAUTION as OF_MAPS

    drawn = [
        f'<div class="wide">{html.picture(path, about)}</div>'
        for name, about in PICTURES
        for path in files
        if path.name == f"{name}.png"
    ]
    links = "".join(f'<li><a href="{path.name}">{path.name}</a></li>' for path in files)
    meanings = {**MEANINGS, **OTHERS}
    notes = [f"{name}: {meaning}." for name, meaning in meanings.items()]
    parts = [
        f"<header><h1>{html.literal(f'Inside {title}')}</h1>"
        f'<p class="verdict open">{html.literal(OF_MAPS)}</p></header><ul>{links}</ul>',
        html.section("Pictures", "".join(drawn)) if drawn else "",
        _table("Change of the loss without a layer or head", costs_by_part(result), (), CAUTION),
        _table("Heads", result.heads, ("map", "kind", "head", *meanings), *notes),
        _table("Heads switched off one by one", result.pruning),
        _table("Syntax", result.syntax),
        _table("Coreference", result.coreference),
        _table("Gradient by distance", result.distance),
        html.section("Not applicable", html.notes(*result.notes)) if result.notes else "",
    ]
    return html.whole(f"Inside {title}", parts, style=STYLE)


def _table(title: str, records: Any, columns: Sequence[str] = (), *notes: str) -> str:
    """Returns an HTML section with `title`, a table of the `columns` (by default all) of `records`,
    which are dicts, and `notes` below; "" without records; folded if it has more than `LONG` rows.
    """
    if not records:
        return ""
    names = tuple(name for name in columns or records[0] if name in records[0])
    rows = tuple(tuple(_cell(record[name]) for name in names) for record in records)
    words = ("layer", "map", "kind", "place", "embedding", "relation", "direction", "baseline")
    numbers = frozenset(n for n, name in enumerate(names) if name not in words)
    made = Table(title, names, rows, numbers, notes=notes)
    return html.table(made, folded=len(rows) > LONG)
