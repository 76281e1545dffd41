"""From config to labelled texts as ids: source, vocabulary, classes, and a fingerprint of what was
read.

A pair of texts is read with one vocabulary. Classes are the labels of the training split, in
alphabetical order; class k of C is k + 1 in a batch, 0 is a row of padding, and C + 1 any label
that only another split has.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict

import numpy as np

from attnlab.config.schema import Node
from attnlab.data import read_splits
from attnlab.data.columns import Examples, Packed
from attnlab.data.corpus import (
    OfRows,
    VocabularySettings,
    giving,
    has_vocabularies,
    inherited_vocabulary,
    load_vocabularies,
    save_vocabularies,
)
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError, nearest
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import Damaged, read

Labelled = tuple[tuple[str, ...], str]


class _Saved(TypedDict):
    """`labels.json`."""

    labels: list[str]
    sentences: Literal[1, 2]
    sha256: str


_FILE = Path("vocabulary") / "labels.json"
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Classes:
    """What was learned from the training split beside the vocabulary.

    Attributes:
      names: the labels, in the order of their numbers; none where labels are no classes but
        numbers.
      sentences: how many texts an example has.
    """

    names: tuple[str, ...]
    sentences: int

    def save(self, workdir: Path) -> None:
        """Write `<workdir>/vocabulary/labels.json`, whole or not at all."""
        body = {"labels": list(self.names), "sentences": self.sentences}
        write_atomic(
            workdir / _FILE, json.dumps({**body, "sha256": _digest(body)}, ensure_ascii=False)
        )

    @classmethod
    def load(cls, workdir: Path) -> Classes:
        """What `save` wrote; `UserError` where it is missing or damaged."""
        path = workdir / _FILE
        try:
            content = read(path.read_bytes(), _Saved)
            body: dict[str, Any] = {"labels": content["labels"], "sentences": content["sentences"]}
            whole = content["sha256"] == _digest(body)
        except OSError as error:
            raise UserError(f"cannot read the labels {path}: {error.strerror or error}") from error
        except Damaged as error:
            raise UserError(
                f"the labels {path} are damaged ({error}); put back a good copy"
            ) from error
        if not whole:
            raise UserError(
                f"the labels {path} are damaged (their checksum does not match); put back a good"
                " copy"
            )
        return cls(tuple(body["labels"]), body["sentences"])


class OfClasses(OfRows):
    """The same with classes that were learned beside the vocabulary."""

    classes: Classes

    def save(self, workdir: Path) -> None:
        """Vocabulary and classes into `<workdir>/vocabulary/`."""
        save_vocabularies((self.vocabulary, self.vocabulary), workdir)
        self.classes.save(workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return has_vocabularies(workdir) and has_classes(workdir)


@dataclasses.dataclass(frozen=True)
class LabelledTexts(OfClasses):
    """The data of a run.

    Attributes:
      rows: split to its (texts, label) as read.
      examples: split to the same as ids.
      vocabulary: of all texts.
      classes: the labels and how many texts an example has.
      fingerprints: split to the `fingerprint` of its rows, for the manifest.
    """

    kept: ClassVar[str] = "vocabulary or labels"
    things: ClassVar[str] = "examples"

    rows: Mapping[str, Sequence[Labelled]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    classes: Classes
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def about(self, split: str) -> str:
        """Examples, tokens (EOS counted, and how many are unknown) and how often each label occurs,
        in a line.
        """
        sides = self.examples[split].sequences
        tokens = sum(len(side.ids) for side in sides)
        unknown = sum(self.vocabulary.special.unknown(side.ids) for side in sides)
        kind = "pairs" if self.classes.sentences == 2 else "texts"
        sizes = f"{len(self.rows[split]):,} {kind}, {tokens:,} tokens ({unknown:,} unknown)"
        if not self.classes.names:
            return sizes
        counts = Counter(label for _, label in self.rows[split])
        labels = ", ".join(
            f"{name} {counts[name]:,}"
            for name in (*self.classes.names, *sorted({*counts} - {*self.classes.names}))
        )
        return f"{sizes}; {labels}"


def has_classes(workdir: Path) -> bool:
    """Whether `Classes.save` has been there."""
    return (workdir / _FILE).exists()


def source(data: Mapping[str, Any]) -> Any:
    """The source of a config node; `UserError` unless it has labels."""
    return giving(data, "labelled")


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    answer: Callable[[str], Any] | None = None,
    begun: Path | None = None,
) -> LabelledTexts:
    """Read the splits of a source and encode them.

    Vocabulary and classes come from `<workdir>/vocabulary/` if they are there. Else they are
    learned, on the training split and nothing else; `LabelledTexts.save` keeps them. Nothing is
    written here.

    Args:
      data: the config node of the source.
      vocabulary: the config node of `VocabularySettings`.
      workdir: of the run.
      splits: which to read; also read, but not returned, is "train" where something has to be
        learned.
      answer: a label to numbers, where labels are no classes; see `answered`.
      begun: a run whose vocabulary is taken instead of a learned one, see
        `corpus.inherited_vocabulary`.

    Raises:
      UserError: bad config, unreadable data, fewer than two classes, what was saved is damaged or
        of other settings, or the rows of a split do not fit it (see `encode`).
    """
    of = source(data)
    settings = VocabularySettings.read(vocabulary)
    if not settings.shared:
        raise UserError(
            "config.vocabulary.shared=False: the texts of a pair are read with one vocabulary here;"
            " leave it True"
        )
    folder = workdir if workdir is not None and LabelledTexts.saved(workdir) else None
    rows = read_splits(of.labelled, splits, learn=folder is None)
    if folder is not None:
        (learned, _), classes = load_vocabularies(folder, settings), Classes.load(folder)
    else:
        of_run = inherited_vocabulary(begun, settings)
        learned, classes = _learn(rows["train"], settings, named=answer is None, of_run=of_run)
    rows = {split: rows[split] for split in splits}
    encoded = encode if answer is None else functools.partial(answered, answer=answer)
    return LabelledTexts(
        rows,
        {split: encoded(learned, classes, chosen, split) for split, chosen in rows.items()},
        learned,
        classes,
        {split: fingerprint(chosen) for split, chosen in rows.items()},
    )


def encode(
    vocabulary: Vocabulary, classes: Classes, rows: Sequence[Labelled], split: str
) -> Examples:
    """Rows to ids and class numbers; labels that the training split does not have share one number
    beyond its own, and are logged.

    Raises:
      UserError: an example with more or fewer texts than those of training; such a label in the
        training split, or no other in a split.
    """
    _check(classes, rows, split)
    numbers = {name: number for number, name in enumerate(classes.names, 1)}
    of_rows = np.array([numbers.get(label, len(numbers) + 1) for _, label in rows], np.int32)
    return Examples(**_sides(vocabulary, classes, [texts for texts, _ in rows]), label=of_rows)


def answered(
    vocabulary: Vocabulary,
    classes: Classes,
    rows: Sequence[Labelled],
    split: str,
    answer: Callable[[str], Any],
) -> Examples:
    """Rows to ids and to what `answer` makes of their labels, numbers or arrays of one shape, as
    float32.

    Raises:
      UserError: an example with more or fewer texts than those of training, a label that `answer`
        refuses, or an answer that is not finite or of another shape than the first one, and where
        it stands.
    """
    _check_texts(classes, rows, split)
    truth: list[np.ndarray] = []
    for number, (_, label) in enumerate(rows, 1):
        try:
            truth.append(_numbers(label, answer(label)))
            if truth[-1].shape != truth[0].shape:
                shapes = f"of shape {truth[-1].shape}, {rows[0][1]!r} of example 1 {truth[0].shape}"
                raise UserError(
                    f"label {label!r} means an array {shapes}; all answers must have one shape"
                )
        except UserError as error:
            raise UserError(
                f"config.data: example {number} of the {split} split: {error}"
            ) from error
    sides = _sides(vocabulary, classes, [texts for texts, _ in rows])
    return Examples(**sides, label=np.asarray(truth, np.float32))


def _numbers(label: str, answer: Any) -> np.ndarray:
    """What a label means, as float32; `UserError` unless it is finite numbers, in float32 too."""
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(answer, np.float32)
    except (TypeError, ValueError):  # rows of several lengths, words
        numbers = np.asarray(np.nan)
    if not np.isfinite(numbers).all():
        raise UserError(f"label {label!r} means {answer}, expected finite float32 numbers")
    return numbers


def _check_texts(classes: Classes, rows: Sequence[Labelled], split: str) -> None:
    """Every example has as many texts as those of training."""
    for number in {len(texts) for texts, _ in rows} - {classes.sentences}:
        advice = (
            "name as many columns or features in config.data.source and config.data.target as in"
            " training"
        )
        raise UserError(
            f"config.data: the {split} split has an example with {number} text(s), training had"
            f" {classes.sentences}; {advice}"
        )


def _check(classes: Classes, rows: Sequence[Labelled], split: str) -> None:
    """What `encode` raises, and the warning about labels that only this split has."""
    _check_texts(classes, rows, split)
    strange = Counter(label for _, label in rows if label not in classes.names)
    if not strange:
        return
    first = next(iter(strange))
    if split == "train" or strange.total() == len(rows):
        hint = nearest(first, classes.names)
        raise UserError(
            f"the {split} split has the label {first!r}, which the training split does not have;"
            f" {hint}"
        )
    named = ", ".join(sorted(strange)[:5]) + (", ..." if len(strange) > 5 else "")
    message = (
        "%d of %d examples of the %s split have a label that the training split does not have (%s):"
        " wrong whatever is answered, %s"
    )
    _log.warning(
        message,
        strange.total(),
        len(rows),
        split,
        named,
        "and left out of the loss, which would be infinite",
    )


def unlabelled(
    vocabulary: Vocabulary, classes: Classes, texts: Sequence[Sequence[str]]
) -> Examples:
    """The ids of the first texts ("source") and, of pairs, of the second ones ("target"), EOS at
    the end of each.
    """
    return Examples(**_sides(vocabulary, classes, texts))


def _sides(
    vocabulary: Vocabulary, classes: Classes, texts: Sequence[Sequence[str]]
) -> dict[str, Packed]:
    """The columns of `unlabelled`."""
    return {
        name: vocabulary.packed(each[side] for each in texts)
        for side, name in enumerate(("source", "target")[: classes.sentences])
    }


def fingerprint(rows: Iterable[Labelled]) -> str:
    """SHA-256 (hex) of the rows in their order; the lengths are part of it, so no text can pose as
    the end of another.
    """
    digest = hashlib.sha256()
    for texts, label in rows:
        parts = (*texts, label)
        digest.update(
            f"{len(parts)} {' '.join(str(len(part)) for part in parts)} {''.join(parts)}".encode()
        )
    return digest.hexdigest()


def _learn(
    rows: Sequence[Labelled], settings: VocabularySettings, named: bool, of_run: Vocabulary | None
) -> tuple[Vocabulary, Classes]:
    """Vocabulary, unless there is one `of_run`, and, where labels are `named` ones, classes of the
    training split.
    """
    counts, names = (
        {len(texts) for texts, _ in rows},
        (sorted({label for _, label in rows}) if named else []),
    )
    if len(counts) != 1 or not counts <= {1, 2}:
        raise UserError(
            "config.data: every example must have one text, or every one two; the training split"
            f" has {sorted(counts)}"
        )
    if named and len(names) < 2:
        raise UserError(
            f"config.data: the training split has no label but {names[0]!r}; there is nothing to"
            " tell apart"
        )
    vocabulary = of_run or Vocabulary.train(
        (text for texts, _ in rows for text in texts), **settings.of_one
    )
    return vocabulary, Classes(tuple(names), *counts)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
