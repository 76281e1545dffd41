"""Tables that somebody else wrote: records, read one by one with their columns by name (rows of CSV and
TSV, lines of JSON, rows of Parquet and Arrow), and lines of cells with a separator between them.

    .csv                     RFC 4180: cells in quotes may have commas, quotes ("") and line ends
    .tsv                     a tab between cells; quotes are text, as text/tab-separated-values has it
    .jsonl .ndjson .json     an object on every line that is not blank
    .parquet .arrow          numbers of classes (`ClassLabel` of `datasets`) become their names

The first three may be packed (.gz, .xz, .zst). A column within another one is named with a dot,
"translation.de".
"""

import contextlib
import csv
import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.data.files import PACKED, unpacked
from attnlab.data.json_files import field_of, objects_of, parse_json, read_json
from attnlab.errors import UserError, nearest

FORMS = {
    **{".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json", ".json": "json"},
    **{".parquet": "parquet", ".arrow": "arrow"},
}
_LONGEST = 2**28  # characters of a line of JSON, or of a cell
_AT_ONCE = 1024  # rows of Arrow
_END = b"\xff" * 4 + bytes(4)  # of a stream of Arrow


Record = tuple[str, dict[str, Any]]
"""A row: where it stands, for messages, and the values of its columns by name."""


def form_of(path: Path) -> str:
    """Returns the form of a file of records by its name, a value of `FORMS`, or "" if it has
    none.
    """
    packed = path.suffix in PACKED
    form = FORMS.get(path.with_suffix("").suffix if packed else path.suffix, "")
    return "" if packed and form in ("parquet", "arrow") else form


def saved_by_datasets(folder: Path) -> list[Path]:
    """Returns the paths of the data files that state.json lists in a folder saved by `datasets`, in
    their order; raises `UserError` if it lists none or a file is missing.
    """
    state = folder / "state.json"
    with contextlib.suppress(KeyError, TypeError):  # it is no such list
        files = [folder / file["filename"] for file in read_json(state)["_data_files"]]
        if files and all(map(Path.is_file, files)):
            return files
    raise UserError(f"{state} names no files of data, or some that are gone; put back a good copy")


def records(path: Path, columns: Sequence[str] = (), separator: str = "") -> Iterator[Record]:
    """Yields each row of a CSV, TSV, JSON, Parquet or Arrow file as (location for messages, values
    by column), with the given columns or all; reads a row, or a batch of Parquet or Arrow, at a
    time.

    Args:
      path: of a form in `FORMS`.
      columns: names, "a.b" for the column b within a.
      separator: between cells of CSV and TSV; "" for a comma and a tab.

    Raises:
      UserError: an unreadable or damaged file, no such column, one that is there twice, or a row
        with more or fewer cells than the first line.
    """
    form = form_of(path)
    try:
        if form in ("parquet", "arrow"):
            yield from _arrow_rows(path, form, columns)
            return
        with unpacked(path) as (stream, _):
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="\n" if form == "json" else "")
            tab = separator or ("\t" if form == "tsv" else ",")
            lines = iter(lambda: text.readline(_LONGEST), "")
            rows = (
                objects_of(path, lines) if form == "json" else _csv_rows(path, text, columns, tab)
            )
            for where, row in rows:
                yield where, _select_columns(row, columns, where)
    except UnicodeDecodeError as error:
        byte = f"0x{error.object[error.start]:02x}"
        raise UserError(f"{path}: not UTF-8 (byte {byte}); convert the file to UTF-8") from error


def _column_roots(path: Path, columns: Sequence[str], present: Sequence[str]) -> list[str]:
    """Returns the columns among `present` that have the requested `columns` (a for "a.b"), each
    once, or all if none is requested; raises `UserError`, with near names, for a column that is
    missing or there twice.
    """
    roots = [name if name in present else name.partition(".")[0] for name in columns]
    for name, root in zip(columns, roots, strict=True):
        if (count := present.count(root)) != 1:
            reason = f"{count} columns" if count else "no column"
            hint = "name them apart" if count else nearest(name, present)
            raise UserError(f"{path} has {reason} {name!r}; {hint}")
    return list(dict.fromkeys(roots or present))


def _csv_rows(
    path: Path, text: io.TextIOBase, columns: Sequence[str], separator: str
) -> Iterator[Record]:
    """Yields each row of a CSV or TSV text as (location for messages, cells by the column names in
    the first line), without blank lines; raises `UserError` for a row with more or fewer cells, a
    column that is missing or there twice, or wrong quotes.
    """
    csv.field_size_limit(_LONGEST)
    quoting = csv.QUOTE_NONE if form_of(path) == "tsv" else csv.QUOTE_MINIMAL
    rows = csv.reader(text, delimiter=separator, quoting=quoting, strict=True)  # type: ignore[arg-type]
    try:
        header = [name.strip() for name in next(rows, [])]
        _column_roots(path, columns, header)
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if len(row) == len(header):
                yield where, dict(zip(header, row, strict=True))
            elif any(map(str.strip, row)):
                raise UserError(
                    f"{where}: {len(row)} cell(s), the first line has {len(header)}; mend the line,"
                    " or set config.data.separator"
                )
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num}: {error}; mend its quotes") from error


def _arrow_rows(path: Path, form: str, columns: Sequence[str]) -> Iterator[Record]:
    """Yields each row of a Parquet file, or of an Arrow file or stream, as (location for messages,
    values by column), with names for class numbers; raises `UserError` if a column is missing or
    the file is damaged.
    """
    import pyarrow.parquet

    try:
        if form == "parquet":
            file = pyarrow.parquet.ParquetFile(path, memory_map=True)
            roots = _column_roots(path, columns, file.schema_arrow.names)
            schema, batches = file.schema_arrow, file.iter_batches(_AT_ONCE, columns=roots)
        else:
            source = pyarrow.memory_map(str(path))  # of which nothing is read before it is needed
            magic = source.read(6) == b"ARROW1"
            source.seek(0)
            table = (pyarrow.ipc.open_file if magic else pyarrow.ipc.open_stream)(source).read_all()
            source.seek(source.size() - len(_END))
            if not magic and source.read() != _END:
                raise UserError(f"{path} is cut off: a stream of Arrow has a mark at its end")
            roots = _column_roots(path, columns, table.column_names)
            schema, batches = table.schema, table.select(roots).to_batches(_AT_ONCE)
        classes = _noted_classes(schema, str(path))
        for number, row in enumerate((row for part in batches for row in part.to_pylist()), 1):
            where = f"{path}, row {number}"
            yield where, _select_columns(_with_names(row, classes), columns, where)
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise UserError(f"cannot read {path} as {form}: {error}") from error


def _select_columns(row: Mapping[str, Any], columns: Sequence[str], where: str) -> dict[str, Any]:
    """Returns the values of some columns of a row, of all if there are no names; raises `UserError`
    if one is missing.
    """
    return {name: field_of(row, name, where, "column") for name in columns or row}


def _noted_classes(schema: Any, where: str) -> Any:
    """Returns the class names by column, nested as `_names_of` returns them, that `datasets` has
    noted in the schema of a Parquet or Arrow file; raises `UserError` if these notes are damaged.
    """
    noted = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"), where)
    try:
        return _names_of(noted.get("info", {}).get("features", {}))
    except (AttributeError, LookupError) as error:
        raise UserError(f"{where}: the notes of `datasets` in it are damaged") from error


def _names_of(feature: Any) -> Any:
    """Returns the class names of a feature of `datasets` that is a `ClassLabel` or a list of them,
    for a feature with columns a dict of the results that are not empty, or None for any other
    feature.
    """
    while isinstance(feature, list) or isinstance(kind := feature.get("_type"), str):
        if not isinstance(feature, list) and "feature" not in feature:
            return feature["names"] if kind == "ClassLabel" else None
        feature = feature[0] if isinstance(feature, list) else feature["feature"]
    labels = {name: _names_of(inner) for name, inner in feature.items()}
    return {name: names for name, names in labels.items() if names not in (None, {})}


def _with_names(value: Any, names: Any) -> Any:
    """Returns a value with class numbers replaced by their names (a list, or a dict of them by
    column); "" replaces None, -1 and numbers without a name, and lists and columns are searched
    recursively.
    """
    if isinstance(value, list):
        return [_with_names(inner, names) for inner in value]
    if isinstance(names, dict):
        inside = names.keys() & (value or {}).keys()
        return value and value | {name: _with_names(value[name], names[name]) for name in inside}
    return names[value] if value is not None and 0 <= value < len(names) else ""


SEPARATORS: dict[str, Callable[[str], list[str]]] = {
    "tab": lambda line: [cell.strip(" ") for cell in line.split("\t")],
    "blanks": lambda line: re.split(" +", line.strip(" ")),
    "any": str.split,
}
"""What stands between cells: a tab; blanks, one or more; or any white space, as Unicode has it."""
AUTO = "auto"
_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """A line of a table: its number, from 1, and its cells; a blank line has none."""

    line: int
    cells: list[str]


def split_lines(lines: Sequence[str], separator: str, setting: str) -> list[Row]:
    """Splits each line into cells at the separator ("auto": tabs if any line has one, else blanks)
    and returns a list of `Row` (line number, cells), without cells for a blank line; raises
    `UserError` for an invalid separator.

    Args:
      lines: of the file.
      separator: a name of `SEPARATORS`; "auto", tabs if the file has any, else blanks; or the very
        sign, such as "|".
      setting: what `separator` is called, for messages.

    Raises:
      UserError: a word that is no such name, or nothing.
    """
    if separator == AUTO:
        separator = "tab" if any("\t" in line for line in lines) else "blanks"
    if separator not in SEPARATORS and (not separator or separator.isalnum()):
        raise UserError(
            f"{setting}={separator!r}: expected a sign such as '|', or a name;"
            f" {nearest(separator, (AUTO, *SEPARATORS))}"
        )
    split = SEPARATORS.get(separator, lambda line: [cell.strip() for cell in line.split(separator)])
    return [
        Row(number, split(line) if line.strip() else []) for number, line in enumerate(lines, 1)
    ]


def without_comments(rows: Iterable[Row], tag: int, where: str) -> list[Row]:
    """Returns the rows without comments and logs their number: a comment stands before the first
    word of a sentence, begins with "#", and has another number of cells than words, or a tag (the
    cell at `tag`) that no word has.

    Args:
      rows: words, and blank lines between sentences.
      tag: the place of the tag among the cells.
      where: the file.
    """
    rows = list(rows)
    words = [row.cells for row in rows if row.cells and not row.cells[0].startswith("#")]
    width = len(words[0]) if words else 0
    tags = {cells[tag] for cells in words if len(cells) == width > max(tag, -tag - 1)}
    remaining: list[Row] = []
    comments: list[Row] = []
    for row in rows:
        begins = not remaining or not remaining[-1].cells
        marked = begins and row.cells and row.cells[0].startswith("#")
        is_word = tags and len(row.cells) == width and row.cells[tag] in tags
        (comments if marked and not is_word else remaining).append(row)
    if comments:
        first = comments[0].line
        _log.warning("left out %d comments of %s, line %d the first", len(comments), where, first)
    return remaining


def check_widths(rows: Iterable[Row], where: str) -> None:
    """Raises `UserError` for the first row whose number of cells differs from that of the first
    row; ignores blank lines.
    """
    first: Row | None = None
    for row in rows:
        first = first or (row if row.cells else None)
        if first and row.cells and len(row.cells) != len(first.cells):
            raise UserError(
                f"{where}, line {row.line}: {len(row.cells)} column(s), line {first.line} has"
                f" {len(first.cells)}; mend the line, or say what stands between columns"
            )
