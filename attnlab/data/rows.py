"""Texts in the named columns of tables: CSV, TSV, JSON lines, Parquet, Arrow, and folders that
`datasets` of Hugging Face has saved; several files, and splits by a column or by a seeded share.
"""

import dataclasses
import glob
import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.data.files import PACKED, alike, part
from attnlab.data.passages import Question
from attnlab.data.questions import check_answers
from attnlab.data.readers.records import FORMS, Record, form_of, records, saved_by_datasets
from attnlab.data.tagged import Sentence
from attnlab.errors import UserError, nearest
from attnlab.records.files import expanded

TAKES: Mapping[str, tuple[str, ...]] = {
    "texts": ("text",),
    "pairs": ("source", "target"),
    "labelled": ("text", "second", "label"),
    "tagged": ("words", "tags"),
    "questions": ("passage", "question", "answers"),
    "images": ("image", "label"),
    "captions": ("image", "caption"),
    "objects": ("image", "boxes", "categories"),
    "masks": ("image", "mask"),
    "visual_questions": ("image", "question", "answer"),
}
"""The columns that each kind of task takes, by the method of a source that the task asks for."""
NAMES: Mapping[str, str] = {
    **{column: column for columns in TAKES.values() for column in columns},
    **{"second": "", "words": "tokens", "passage": "context"},
    **{"boxes": "objects.bbox", "categories": "objects.category"},
}
"""What each column is called in the files, unless `columns` says otherwise; "" for none."""
NO_TEXTS = ("words", "tags", "answers", "image", "caption", "boxes", "categories", "mask")
"""The columns whose cells may be something else than a text, a number, true or false."""
NONE: tuple[tuple[str, Any], ...] = ("boxes", []), ("categories", [])
"""What says that an image has no objects, and so is not blank."""
NAMED = {"train": ("train",), "valid": ("valid", "validation", "dev"), "test": ("test",)}
SHARES = {"train": "[:80%]", "valid": "[80%:90%]", "test": "[90%:]"}
"""What each split may be called, and its share of `files`."""
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Texts in the columns of tables, for every task of texts; which columns a task takes stands in
    `attnlab.data.rows.TAKES`.

    Attributes:
      directory: where the files lie; "" for the current folder.
      files: files that have all splits, as `train` names them: training gets 80 %, validation and
        test 10 %; or "all[fold]", by a column that has the names of the splits; "" where each split
        has files of its own.
      train: the files of training: a name, with or without its ending (.csv, .tsv, .jsonl, .json,
        .parquet, .arrow; .gz, .xz or .zst behind it), a pattern such as "part-*.csv", or a folder,
        also one that `datasets` has saved. Of these files a share, "all[:90%]", or the rows with
        some values in a column, "all[fold=1,2]". "" for `files`, or the name of the split.
      valid, test: the same; the name of valid is also validation or dev.
      seed: of shares. Rows that are equal in the first column that is read are of one split.
      separator: between the cells of CSV and TSV, such as ";"; "" for a comma and a tab.
      columns: what the columns are called in the files: `text` and `label`, and `second` where
        pairs of texts are labelled; `source` and `target`; `words` and `tags`, lists or texts with
        blanks; `passage`, `question` and `answers`; `image`, and what stands with it, see
        `attnlab.data.images.rows.ImageRows`.

    Raises:
      UserError: settings that do not go together.
    """

    directory: str = ""
    files: str = ""
    train: str = ""
    valid: str = ""
    test: str = ""
    seed: int = 0
    separator: str = ""
    columns: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(NAMES))

    def __post_init__(self) -> None:
        """Raises `UserError` for a separator of several characters or that is a line end or a
        quote, and for `files` with a share or values in brackets, which only a single split may
        have.
        """
        if self.files.endswith("]") and not re.fullmatch(r".*\[[^\[\]=:]+\]", self.files):
            raise UserError(
                f"config.data.files={self.files!r}: a share or values belong to data.train,"
                " data.valid and data.test; here a column may stand, all[fold]"
            )
        if len(self.separator) > 1 or self.separator in ("\n", "\r", '"'):
            raise UserError(f"config.data.separator={self.separator!r} must be one sign")

    def name_in_files(self, column: str) -> str:
        """Returns what a column is called in the files; "" for one that is not read."""
        return self.columns.get(column, NAMES[column])

    def part(self, split: str) -> tuple[Sequence[str], str, Sequence[str], int, int]:
        """Returns which rows are a split, as five values: possible names of its files (of which one
        is to exist), a column ("" for none), the values in it that select rows, and the first and
        last percent of the rows; raises `UserError` for an impossible share.
        """
        of_all = self.files + ("" if self.files[-1:] in ("", "]") else SHARES[split])
        names, setting = NAMED[split], getattr(self, split) or of_all
        if match := re.fullmatch(r"(.*)\[([^\[\]=:]+)(?:=([^\[\]]*))?\]", setting):
            values = [*map(_plain, match[3].split(","))] if match[3] else names
            return (match[1],), match[2], values, 0, 100
        name, begin, end = part(split, setting)
        return (name,) if name else names, "", (), begin, end

    def paths(self, split: str) -> list[Path]:
        """Returns the files from which the rows of a split come, in their order."""
        return find_tables(self.directory, self.part(split)[0], f"config.data.{split}")

    def rows(self, split: str, method: str) -> list[Record]:
        """Returns the rows of a split as (location, values by our names of the columns that
        `method` needs); leaves out blank rows (no boxes, or none of their categories, are not
        blank), and raises `UserError` for a row blank in part (except `answers`) or no row.

        Args:
          split: which.
          method: of `TAKES`; `second` is left out if it is called "".

        Raises:
          UserError: no such file, column or split, no row, a cell that is blank or no text, or a
            damaged file.
        """
        names = {c: name for c in TAKES[method] if (name := self.name_in_files(c)) or c != "second"}
        _, key, values, begin, end = self.part(split)
        rows, read_rows, blank, counts = list[Record](), list[Record](), 0, Counter[str]()
        columns = list(dict.fromkeys([*names.values(), *filter(None, [key])]))
        for path in self.paths(split):
            for where, cells in records(path, columns, self.separator):
                if key:
                    counts[value := _plain(as_text(cells[key], key, where))] += 1
                    if value not in values:
                        continue
                row = {
                    column: cells[name] if column in NO_TEXTS else as_text(cells[name], name, where)
                    for column, name in names.items()
                }
                read_rows.append((where, row))
        percents = self._percents(read_rows) if (begin, end) != (0, 100) else [0.0] * len(read_rows)
        for (where, row), percent in zip(read_rows, percents, strict=True):
            if not begin <= percent < end:
                continue
            lacking = [names[c] for c, v in row.items() if is_blank(v) and (c, v) not in NONE]
            if len(lacking) == len(row):
                blank += 1
            elif lacking and lacking != [names.get("answers")]:
                raise UserError(
                    f"{where}: column {lacking[0]!r} is blank; fill it in or leave it out"
                )
            else:
                rows.append((where, row))
        if not rows:
            missing = f"no row of the {split} split has anything in {', '.join(names.values())}"
            if key:
                expected = " or ".join(map(repr, values))
                missing += f" and {expected} in {key}; {nearest(values[0], [*counts][:20])}"
            raise UserError(f"config.data: {missing}")
        if blank:
            _log.warning("skipped %d blank rows of the %s split", blank, split)
        self._warn(split, counts)
        return rows

    def _warn(self, split: str, counts: Mapping[str, int]) -> None:
        """Logs a warning about values selected for a split that no row has in its column, and, for
        "train", about rows whose value belongs to no split; `counts` has the number of rows by
        value.

        Args:
          split: which.
          counts: how many rows have each value of the column.
        """
        names, key, values, _, _ = self.part(split)
        absent = [value for value in values if value not in counts and values is not NAMED[split]]
        if absent:
            _log.warning("data.%s: no row has %s in %s", split, " or ".join(absent), key)
        used = {v for s in NAMED if self.part(s)[:2] == (names, key) for v in self.part(s)[2]}
        if split == "train" and (unused := {v: n for v, n in counts.items() if v not in used}):
            listed = ", ".join(map(repr, [*unused][:5]))
            _log.warning("%d rows are of no split: %s has %s", sum(unused.values()), key, listed)

    def _percents(self, rows: Sequence[Record]) -> list[float]:
        """Returns where each row is drawn, in percent, by its first column."""
        return [self._percent(next(iter(row.values()))) for _, row in rows]

    def _percent(self, value: Any) -> float:
        """Returns where a row is drawn, in percent, by the value of its first column, of a text
        without regard to white space, so that more rows move no other.
        """
        value = in_line(value) if isinstance(value, str) else value
        digest = hashlib.blake2b(f"{self.seed} {value!r}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64 * 100

    @property
    def sentences(self) -> int:
        """Returns how many texts a labelled example has."""
        return 2 if self.name_in_files("second") else 1

    def texts(self, split: str) -> list[str]:
        """Returns the texts of a split as they stand there; rows without one are left out."""
        return [row["text"] for _, row in self.rows(split, "texts")]

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Returns the source and target texts of a split, white space as single blanks."""
        rows = self.rows(split, "pairs")
        return [(in_line(row["source"]), in_line(row["target"])) for _, row in rows]

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Returns a list with a pair for each row of a split: a tuple of its one or two texts,
        stripped at both ends, and its label, with white space as single blanks.
        """
        rows = ([*map(str.strip, row.values())] for _, row in self.rows(split, "labelled"))
        return [(tuple(texts), in_line(label)) for *texts, label in rows]

    def tagged(self, split: str) -> list[Sentence]:
        """Returns the words and tags of each row of a split as a `Sentence`; raises `UserError`
        unless a row has as many tags as words and each is a single word.
        """
        sentences = []
        for where, row in self.rows(split, "tagged"):
            words, tags = (
                _words(row[name], self.name_in_files(name), where) for name in TAKES["tagged"]
            )
            if len(words) != len(tags) or any(len(word.split()) != 1 for word in words + tags):
                raise UserError(
                    f"{where}: {len(words)} words and {len(tags)} tags; each word needs one, and"
                    " none may be blank or have white space in it"
                )
            sentences.append(Sentence(words, tags))
        return sentences

    def questions(self, split: str) -> list[Question]:
        """Returns the questions of a split as a list of `Question` (question, passage, answers as
        (text, position)); answers come from cells in SQuAD's form or of a text, searched in the
        passage (a blank cell: no answer); raises `UserError` for other cells or an answer not at
        its position.
        """
        questions = []
        for where, row in self.rows(split, "questions"):
            cell = row["answers"] or {"text": [], "answer_start": []}
            if isinstance(cell, str):
                cell = {"text": [cell], "answer_start": [row["passage"].find(cell)]}
            try:
                answers = tuple(zip(cell["text"], map(int, cell["answer_start"]), strict=True))
                questions.append(Question(row["question"], row["passage"], answers))
                check_answers(questions[-1], where)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"{where}: answers are {str(cell)[:40]}; expected a text, or an object with the"
                    " lists 'text' and 'answer_start'"
                ) from error
        return questions


class NoTable(UserError):
    """No table has a name that was looked for."""


def find_tables(directory: str, names: Sequence[str], where: str) -> list[Path]:
    """Returns the sorted paths of the table files that belong to the one of `names` (of a file,
    with or without ending, of numbered parts, a folder or a pattern) that exists in `directory`;
    raises `NoTable` if none exists, `UserError` if several do.

    Args:
      directory: of the names.
      names: of which one is there.
      where: the setting that has them, for messages.

    Raises:
      NoTable: none is there, or a file that is no table.
      UserError: two of them, two forms of one name, or a file packed and unpacked.
    """
    root, matches = expanded(directory), dict[Any, list[Path]]()
    for name in names:
        path = root / name
        for end in ("", ".*", "-[0-9]*-of-[0-9]*"):
            pattern = glob.escape(name) + end if end or path.exists() else name
            if path.is_dir() and not end:
                pattern = os.path.join(pattern, "*")
            inside = glob.glob(pattern, root_dir=root, recursive=True)
            tables = sorted(root / file for file in inside if form_of(root / file))
            if not end and (path / "state.json").is_file():
                tables = saved_by_datasets(path)
            plain = Counter(_unpacked(file) for file in tables)
            for file in tables:  # files that differ here are not parts of one table
                twice = file.name if end == ".*" or plain[_unpacked(file)] > 1 else form_of(file)
                matches.setdefault((name, end, twice), []).append(file)
            if tables and not path.is_dir():
                break
    tables, *ambiguous = [*matches.values()] or [[]]
    if ambiguous:
        examples = " and ".join(os.path.relpath(way[0], root) for way in (tables, ambiguous[0]))
        raise UserError(f"{where}: {root} has {examples}; name the one that is meant")
    if tables:
        return tables
    forms, path = ", ".join(FORMS), root / names[0]
    if path.exists():
        raise NoTable(f"{where}: {path} {'holds' if path.is_dir() else 'is'} no table ({forms})")
    raise NoTable(
        f"{where}: no table ({forms}) {' or '.join(map(repr, names))} in {root}{os.sep}; {alike(path)}"
    )


def _unpacked(file: Path) -> Path:
    """Returns the path of a file without the ending of a packed one."""
    return file.with_suffix("") if file.suffix in PACKED else file


def as_text(value: Any, name: str, where: str) -> str:
    """Returns the value of a cell as a str: a number, true or false as JSON writes it (1.0 as "1"),
    "" for None and NaN; raises `UserError`, which names the column `name`, for a value of another
    type.
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, (bool, int, float)):
        is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        return json.dumps(int(value) if is_whole else value)
    raise UserError(f"{where}: column {name!r} is {type(value).__name__}, not a text")


def _words(value: Any, name: str, where: str) -> tuple[str, ...]:
    """Returns the words of a list, or of a text with blanks between them."""
    if isinstance(value, list):
        return tuple(as_text(word, name, where).strip() for word in value)
    return tuple(as_text(value, name, where).split())


def _plain(value: str) -> str:
    """Returns a value of the column of splits without white space around it, "1.0" as "1"."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", value.strip())


def in_line(text: str) -> str:
    """Returns a text with white space as single blanks."""
    return " ".join(text.split())


def is_blank(value: Any) -> bool:
    """Whether a cell has nothing in it, or a number that is none."""
    text = value.strip() if isinstance(value, str) else value
    return text in (None, "", b"", [], {}) or value != value
