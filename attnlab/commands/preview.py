"""`preview DATA`: what is in tables of data: columns, rows, classes, lengths, what would be cut; and the
command that trains on it.
"""

import argparse
import itertools
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.progress import table

ROWS = 5_000
CONFIGS: Mapping[str, str] = {
    "visual_questions": "configs/visual_questions.py",
    "objects": "configs/detection.py:detr",
    "masks": "configs/segmentation.py",
    "questions": "configs/question_answering.py",
    "pairs": "configs/translation.py:transformer",
    "tagged": "configs/tagging.py",
    "captions": "configs/captioning.py",
    "images": "configs/image_classification.py",
    "labelled": "configs/classification.py:transformer",
    "texts": "configs/language_modelling.py:decoder",
}
"""The config that trains on data of each kind; of several kinds that fit the first is meant."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `preview` to its parser: the path of the data, and `--config`."""
    parser.add_argument("data", metavar="DATA", help="a file, a pattern in quotes, or a folder")
    parser.add_argument("--config", metavar="FILE.py:ARGUMENT", help="the config to train with")


def run(arguments: argparse.Namespace) -> int:
    """Prints a table on the columns of DATA (first `ROWS` training rows), how many rows are too
    long, and the command that trains on it; returns 0, also if no task fits the columns.

    Raises:
      UserError: no such data or column, or settings that are none of a source of rows.
    """
    from attnlab import config as configs
    from attnlab.config.registry import build
    from attnlab.data import SOURCES
    from attnlab.data.readers.records import records
    from attnlab.data.rows import NAMES, TAKES

    flags = [*_place_settings(arguments.data), *arguments.overrides]
    of_data = [flag for flag in flags if flag.startswith("data.")]
    node = configs.load(CONFIGS["texts"], ["data=image_rows", *of_data]).data
    source = build(SOURCES, node, "data")()
    path = source.paths("train")[0]
    named = {column: name for column, name in source.columns.items() if name != NAMES[column]}
    next(records(path, [*named.values()], source.separator), None)  # they are there
    rows = [row for _, row in itertools.islice(records(path, (), source.separator), ROWS)]
    if not rows:
        raise UserError(f"{path} has no row")
    title = f"{path}: {'the first ' * (len(rows) == ROWS)}{len(rows):,} rows"
    heads = "column", "kind", "blank", "different", "words", "the most frequent"
    shown = [*map(_flatten_row, rows)]
    names = dict.fromkeys(name for row in shown for name in row)
    table(
        title, heads, [_describe_column(name, [row.get(name) for row in shown]) for name in names]
    )
    fitting = _methods_that_fit(source, named, ["", *rows[0], *names])
    if not fitting:
        _print_tasks(source, arguments.data, shown)
        return 0
    config, first = arguments.config or CONFIGS[fitting[0]], TAKES[fitting[0]][0]
    flags.insert(0, f"data={'image_rows' if first == 'image' else 'rows'}")
    batch = configs.load(config, flags).batch
    if (longest := getattr(batch, "max_length", None)) and first != "image":
        texts = {*TAKES[fitting[0]]} - {"label", "tags", "answers"}
        columns = [name for column in texts if (name := source.name_in_files(column))]
        cells = (c for _, c in itertools.islice(records(path, columns, source.separator), ROWS))
        over = sum(max(map(_length, row.values())) >= longest for row in cells)
        print(
            f"\n{over:,} of {len(rows):,} rows have too many words for batch.max_length={longest:,} tokens"
            f" (a word is one or several); batch.longer={getattr(batch, 'longer', 'windows')}"
        )
    words = [f"--config={config}", *(f"--config.{flag}" for flag in flags)]
    words.append(f"--workdir=runs/{Path(arguments.data).stem}")
    try:
        source.check_settings(fitting[0])
    except UserError as error:
        print(f"\nbefore training, {error}")
    print(f"\ntrain on it by\n  python launch.py train {shlex.join(words)}")
    return 0


def _print_tasks(source: Any, data: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints which columns each task reads, and a `preview` command for DATA that names two of its
    own: of `rows`, that with the most words as the text, and that with the fewest values as the label.
    """
    from attnlab.data.rows import TAKES

    names = dict.fromkeys(name for row in rows for name in row)
    print("\nno task finds its columns by their names; a task and what it reads:")
    for method, path_of_config in CONFIGS.items():
        print(
            f"  {Path(path_of_config).stem}: {', '.join(filter(source.name_in_files, TAKES[method]))}"
        )
    text = max(names, key=lambda name: sum(_length(row.get(name, "")) for row in rows))
    label = min({*names} - {text}, key=lambda n: len({str(r.get(n)) for r in rows}), default=0)
    columns = {"text": text, **({"label": label} if label else {})}
    words = [f"--config.data.columns.{x}={name}" for x, name in columns.items()]
    print(f"name them, as by\n  python launch.py preview {shlex.join([data, *words])}")


def _place_settings(data: str) -> list[str]:
    """Returns the overrides of a config ("data.directory=...") for the data at the path `data`: a
    folder with a file for each split (training gives shares to the others), or one table for all;
    raises `UserError` if the folder has a file for another split but none for training.
    """
    from attnlab.data.rows import NAMED, NoTable, find_tables

    lacks = []
    for split, names in NAMED.items():
        try:
            find_tables(data, names, data)
        except NoTable:
            lacks.append(split)
    if len(lacks) == len(NAMED):
        folder, name = os.path.split(data.rstrip("/"))
        find_tables(folder, [name], "preview")
        return [f"data.directory={folder}", f"data.files={name}{'/' * os.path.isdir(data)}"]
    if "train" in lacks:
        has = " and ".join(NAMED.keys() - {*lacks})
        raise UserError(f"{data} has a table for {has} and none for train; name it train")
    shares = [f"data.{split}=train[90%:]" for split in lacks]
    shares = ["data.files=train"] if len(lacks) == 2 else ["data.train=train[:90%]", *shares]
    return [f"data.directory={data}", *shares] if lacks else [f"data.directory={data}"]


def _methods_that_fit(source: Any, named: Iterable[str], names: Sequence[str]) -> list[str]:
    """Returns the reading methods (keys of `TAKES`) whose columns include all those in `named`,
    which the user has set, and are all in a table with the column `names`; `source` gives the name
    of each column there.
    """
    from attnlab.data.rows import TAKES

    return [
        method
        for method in CONFIGS
        if {*named} <= {*TAKES[method]}
        and all(source.name_in_files(column) in names for column in TAKES[method])
    ]


def _flatten_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row (column to value) in which the fields of a nested column have dotted names,
    "column.field"; an image stays whole.
    """
    from attnlab.data.json_files import field_of

    flat: dict[str, Any] = {}
    for name, value in row.items():
        inner = value[0] if isinstance(value, list) and value else value
        nested = isinstance(inner, dict) and "bytes" not in inner
        keys = [f"{name}.{key}" for key in inner] if nested else [name]
        flat |= {key: field_of(row, key, name) for key in keys}
    return flat


def _describe_column(name: str, values: Sequence[Any]) -> tuple[str, str, str, str, str, str]:
    """Returns the six cells that describe a column: its name, the types of its values, the share of
    blanks, the number of different values, their lengths (least, histogram, greatest), and the most
    frequent values.
    """
    import numpy as np

    from attnlab.data.rows import is_blank

    kinds = " or ".join(sorted({type(value).__name__ for value in values if not is_blank(value)}))
    filled = ["..." if isinstance(v, (dict, bytes)) else v for v in values if not is_blank(v)]
    counts = Counter(str(part) for v in filled for part in (v if isinstance(v, list) else [v]))
    lengths = [*map(_length, filled)] or [0]
    bins = np.histogram(lengths, 8)[0]
    bars = "".join("▁▂▃▄▅▆▇█"[7 * count // bins.max()] for count in bins)
    span = [f"{min(lengths):,}", *[bars, f"{max(lengths):,}"] * (min(lengths) < max(lengths))]
    words, blank = " ".join(span), 1 - len(filled) / len(values)
    most = ", ".join(f"{value[:30]!r} {count:,}" for value, count in counts.most_common(3))
    return name, kinds, f"{blank:.0%}", f"{len(counts):,}", words, most[:50]


def _length(value: Any) -> int:
    """Returns the number of words of a cell."""
    return len(value if isinstance(value, list) else str(value).split())
