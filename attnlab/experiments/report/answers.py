"""The answers of a trial to the first examples of the test split, from the files that scoring
writes.
"""

import dataclasses
import itertools
from pathlib import Path
from typing import TypedDict

from attnlab.records.json_kinds import read_file

FILE = "examples.json"
MOST = 5


@dataclasses.dataclass(frozen=True)
class Answer:
    """One example.

    Attributes:
      source: the text; "" if the records do not have it. Two texts have a newline between them.
      reference: the reference answer; "" if the records do not have it.
      answer: the answer of the system.
    """

    source: str
    reference: str
    answer: str


class _Example(TypedDict):
    source: str
    target: str | None


class _Kept(TypedDict):
    """What `examples.json` holds."""

    outputs: str
    examples: list[_Example]


def answers(workdir: Path) -> tuple[Answer, ...]:
    """Reads from a trial's folder its first `MOST` answers to test examples, each as an `Answer`
    (source, reference, answer), in the order of the test split; returns () if the trial is not
    scored or gives no answers.

    In a table (".tsv") a line is "reference TAB answer", and the second text of an example is a
    source too.

    Raises:
      UserError: `examples.json` is damaged.
    """
    remedy = "put back a good copy, or remove it and run the sweep again"
    stored = read_file(workdir / FILE, _Kept, remedy)
    file = workdir / stored["outputs"] if stored is not None else None
    if stored is None or file is None or not file.is_file():
        return ()
    with file.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        lines = [line.removesuffix("\n") for line, _ in zip(stream, range(MOST), strict=False)]
    return tuple(
        _answer(line, example, table=file.suffix == ".tsv")
        for line, example in itertools.zip_longest(lines, stored["examples"][: len(lines)])
    )


def _answer(line: str, example: _Example | None, *, table: bool) -> Answer:
    """Returns the `Answer` in a line of the output file, with source and reference from `example`
    ("" if it is None); in a table the line is "reference TAB answer", and the example's target is a
    second source.
    """
    source, target = ("", "") if example is None else (example["source"], example["target"] or "")
    if not table:
        return Answer(source, target, line)
    reference, _, answer = line.partition("\t")
    return Answer("\n".join(text for text in (source, target) if text), reference, answer)
