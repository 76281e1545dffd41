"""The data of a run: one container and one way to load it, for all kinds of data.

A kind of data (`corpus.Corpus`, `labelled.LabelledTexts`, ...) is a subclass. It names the method of a
source that gives a split, and says what is learned of the training split, what the columns are, and
how a split is described.
What becomes of examples that are longer than `batch.max_length` is one rule for all splits, said
before the first step, see `treat_long_examples`.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, NoReturn, Self, TypeVar

import numpy as np

from attnlab.config.registry import build
from attnlab.config.schema import Node
from attnlab.data import SOURCES, SPLITS
from attnlab.data.columns import Examples
from attnlab.data.learned import Learned, VocabularySettings, has_learned, inherited_vocabulary
from attnlab.data.settings import AnyBatch, Batch
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.progress import patience

Row = TypeVar("Row")
_RENAMED = {
    **dict.fromkeys(("pairs", "texts", "captions", "judged"), "rows"),
    **dict.fromkeys(("guesses", "shown", "unreachable", "beside"), "extra"),
    "classes": "learned.classes",
    "source_vocabulary": "learned.source",
    "target_vocabulary": "learned.target",
}
_DONE = {
    "score": "scored whole",
    "leave_out": "left out",
    "cut": "cut",
    "windows": "read in windows of that length",
}


class Split(NamedTuple):
    """A split as it is stored.

    Attributes:
      rows: as read.
      examples: the same as columns.
      fingerprint: a hash of what was read, for the manifest.
      extra: what else the kind of data knows of a split.
    """

    rows: Sequence[Any]
    examples: Examples
    fingerprint: str
    extra: Any = None


@dataclass(frozen=True)
class Dataset(Generic[Row]):
    """The data of a run, of the splits that were loaded.

        source -> splits -> what is learned of training, or was saved -> columns, fingerprint

    Attributes:
      method: of a source, gives a split.
      such_as: names of sources that have it, for an error message.
      things: the word for rows.
      kept: the word for the files of `save`.
      parts: what these are, see `Learned.load`.
      guessing: whether guesses are learned from the rows of training, which are then always read.
      rows, examples, fingerprints, extra: by split, see `Split`.
      learned: of the training split.
      source: of the rows.
      name: of the source in the config.
      settings: of vocabularies.
      prior: the guesses.
    """

    method: ClassVar[str]
    such_as: ClassVar[str] = ""
    things: ClassVar[str]
    kept: ClassVar[str] = "vocabulary"
    parts: ClassVar[tuple[str, ...]] = ("vocabularies",)
    guessing: ClassVar[bool] = False

    rows: Mapping[str, Sequence[Row]]
    examples: Mapping[str, Examples]
    learned: Learned = field(default_factory=Learned)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    source: Any = None
    name: str = ""
    settings: VocabularySettings = field(default_factory=VocabularySettings)
    prior: Any = None

    # --- what a kind of data says ---

    @classmethod
    def loaded_by(
        cls,
        source: Any,
        settings: VocabularySettings,
        workdir: str | Path | None,
        splits: Sequence[str],
    ) -> Self | None:
        """Returns the data of these splits if the source loads them itself, given the vocabulary
        settings and the run's folder; None (as here) for any other source.
        """
        return None

    def checked(self, content: Any, split: str) -> Any:
        """What the source gave of a split; raise `UserError` where it is not as agreed."""
        return content

    def check_all(self, by_split: Mapping[str, Any]) -> None:
        """Raise `UserError` for splits that do not fit each other."""

    @property
    def learns(self) -> bool:
        """Whether the training split is needed to `learn`."""
        return True

    def learn(self, by_split: Mapping[str, Any]) -> Learned:
        """Trains the vocabulary on the training texts, unless one is inherited, and returns a
        `Learned` with it.
        """
        train = self.texts_of(by_split["train"])
        vocabulary = self.learned.target or Vocabulary.train(train, **self.settings.arguments)
        return Learned.of_vocabulary(vocabulary)

    def texts_of(self, train: Any) -> Iterable[str]:
        """The texts of the training split, of which a vocabulary is learned."""
        raise NotImplementedError

    def prior_of(self, train: Any) -> Any:
        """The `prior` that the training split tells."""

    def encoded(self, content: Any, split: str) -> Split:
        """A split, once `learned` is known; `UserError` where it does not fit that."""
        raise NotImplementedError

    def about(self, split: str) -> str:
        """A line about a split: sizes, and what is worth knowing."""
        raise NotImplementedError

    # --- from a config to data ---

    @classmethod
    def of_config(cls, data: Mapping[str, Any]) -> Any:
        """Builds and returns the data source that the config node `data` names; raises `UserError`
        unless it has the method, such as "pairs", that this kind of data reads.
        """
        source = build(SOURCES, data, "config.data")()
        if not callable(getattr(source, cls.method, None)):
            hint = f"such as {cls.such_as}" if cls.such_as else "see attnlab.data"
            raise UserError(
                f"config.data={data['name']}: a data source for this task needs a method"
                f" {cls.method}(split), {hint}"
            )
        return source

    @classmethod
    @patience("reading the data")
    def load(
        cls,
        data: Mapping[str, Any],
        vocabulary: Mapping[str, Any] | Node | None = None,
        workdir: str | Path | None = None,
        splits: Sequence[str] = ("train", "valid"),
        initial_run: Path | None = None,
        **options: Any,
    ) -> Self:
        """Reads the given splits of the source in the config node `data` and returns an object of
        this class with them, encoded with what `workdir` has saved in vocabulary/, else with an
        inherited vocabulary or what is learned from the training split alone; writes nothing.

        Args:
          data: the config node of the source, `{"name": "files", "directory": ...}`.
          vocabulary: the config node of `VocabularySettings`, where there are texts.
          workdir: of the run.
          splits: which to return; "train" is also read where something has to be learned.
          initial_run: whose vocabulary is taken, see `inherited_vocabulary`.
          options: further fields of the kind of data.

        Raises:
          UserError: bad config, unreadable data, or what was saved is damaged or of other settings.
        """
        source, settings = cls.of_config(data), VocabularySettings.read(vocabulary or {})
        if (self_loaded := cls.loaded_by(source, settings, workdir, splits)) is not None:
            return self_loaded
        empty = cls({}, {}, source=source, name=data["name"], settings=settings, **options)
        learned, inherited = None, None
        if workdir is not None and cls.saved(Path(workdir)):
            learned = Learned.load(Path(workdir), cls.parts, settings)
        elif "vocabularies" in cls.parts and settings.shared:
            inherited = inherited_vocabulary(initial_run, settings)
        if inherited is not None:
            empty = dataclasses.replace(empty, learned=Learned.of_vocabulary(inherited))
            learned = empty.learned if cls.parts == ("vocabularies",) else None
        read = getattr(empty.source, cls.method)
        by_split = {
            split: empty.checked(read(split), split)
            for split in SPLITS
            if split in splits
            or (split == "train" and (cls.guessing or (learned is None and empty.learns)))
        }
        empty.check_all(by_split)
        if learned is None:
            learned = empty.learn(by_split)
        prior = empty.prior_of(by_split["train"]) if cls.guessing else None
        loaded = dataclasses.replace(empty, learned=learned, prior=prior)
        parts = {split: loaded.encoded(by_split[split], split) for split in splits}
        return loaded.with_splits(parts)

    def with_splits(self, parts: Mapping[str, Split]) -> Self:
        """Returns a copy of the data with the splits `parts`, each a `Split` by its name, added, or
        replaced where they exist.
        """
        changed: dict[str, Any] = {
            name: {**getattr(self, name), **{split: part[index] for split, part in parts.items()}}
            for index, name in enumerate(("rows", "examples", "fingerprints", "extra"))
        }
        return dataclasses.replace(self, **changed)

    def stored(self, split: str) -> Split:
        """Returns the rows, examples, fingerprint and `extra` of a loaded split as a `Split`."""
        parts = self.rows, self.examples, self.fingerprints, self.extra
        return Split(*(part.get(split) for part in parts))  # type: ignore[arg-type]

    # --- for tasks ---

    @property
    def vocabulary(self) -> Vocabulary:
        """That of the target, or of all texts."""
        return self.learned.vocabulary

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that were read."""
        return tuple(self.examples)

    def size(self, split: str) -> int:
        """The number of rows."""
        return len(self.rows[split])

    def about_tokens(self, split: str, *columns: str) -> str:
        """Returns in words how many tokens these columns of a split have, and how many are unknown."""
        ids = [self.examples[split].packed(column).ids for column in columns]
        unknown = sum(map(self.vocabulary.special.unknown, ids))
        return f"{sum(map(len, ids)):,} tokens ({unknown:,} unknown)"

    def where(self, split: str) -> str:
        """What an error message calls a split."""
        return f"config.data={self.name}: the {split} split"

    def save(self, workdir: Path) -> None:
        """Keep what was learned with a run."""
        self.learned.save(workdir)

    @classmethod
    def saved(cls, workdir: Path) -> bool:
        """Whether `save` has been there."""
        return has_learned(workdir, cls.parts)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            now = f"; it is {_RENAMED[name]!r} now" if name in _RENAMED else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{now}")


def fingerprint_of_rows(rows: Iterable[tuple[Any, ...]], prefix: str = "") -> str:
    """Returns the SHA-256 (hex) of rows in their order, after the text `prefix`, which may say how
    they are read.
    """
    digest = hashlib.sha256(prefix.encode())
    for row in rows:
        digest.update(repr(tuple(row)).encode())
    return digest.hexdigest()


def fingerprint_of_texts(rows: Iterable[Sequence[str]], counted: bool = False) -> str:
    """Returns the SHA-256 (hex) of rows of texts in their order, the length of each text included
    (and with `counted` their number per row), so that cutting texts elsewhere changes it.
    """
    digest = hashlib.sha256()
    for row in rows:
        lengths = [*[len(row)] * counted, *map(len, row)]
        digest.update(f"{' '.join(map(str, lengths))} {''.join(row)}".encode())
    return digest.hexdigest()


def treat_long_examples(data: Any, batch: AnyBatch, extra_tokens: int = 0) -> tuple[Any, list[str]]:
    """Returns the data with examples longer than `batch.max_length` - `extra_tokens` left out, cut
    or only counted, as `batch.longer` says ("refuse" raises `UserError`), and a list with a line of
    text about each affected split. Windows are only counted here: batches cut them.

    score      training leaves them out, scores take them whole; refused where the system cannot read
               them (what configs of earlier versions mean)
    leave_out  they are left out of every split
    cut        every text of them ends early: its first tokens and its end are kept; of sentences with
               tags whole words
    windows    a text is read in as many rows as it takes, so that each token is predicted once
    refuse     an error counts them

    Only rows that are whole texts can be longer: a stream is cut into rows of `max_length` in any case.

    Args:
      data: an object of the class `loads` of a task; it is not changed.
      batch: the config node; without `longer` nothing is done.
      extra_tokens: tokens of a row that are not the example's.

    Raises:
      UserError: there are long examples and the rule is "refuse", or nothing else in a split.
    """
    rule = getattr(batch, "longer", None)
    if not isinstance(batch, Batch) or rule is None or getattr(batch, "texts", "apart") != "apart":
        return data, []
    limit, lines = batch.max_length - extra_tokens, []
    for split, examples in data.examples.items():
        lengths = examples.lengths
        longer = np.flatnonzero(lengths > limit)
        if not len(longer) or (rule == "score" and split == "train"):  # batches count those
            continue
        summary = (
            f"{split}: {len(longer):,} of {len(lengths):,} {data.things} longer than"
            f" batch.max_length={batch.max_length} tokens (up to {lengths.max() + extra_tokens:,})"
        )
        if rule == "refuse":
            raise UserError(
                f"{summary}, and config.batch.longer=refuse; raise batch.max_length, or let"
                " batch.longer say what becomes of them ('show' has its values)"
            )
        lines.append(f"{summary} are {_DONE[rule]}")
        if rule == "leave_out":
            data = _leave_out(data, split, longer)
        elif rule == "cut" and hasattr(data, "cut"):
            data, lost = data.cut(split, limit)
            lines[-1] += f": {lost:,} words are neither trained on nor scored"
        elif rule == "cut":
            data = data.with_splits(
                {split: data.stored(split)._replace(examples=examples.cut(limit))}
            )
    return data, lines


def _leave_out(data: Any, split: str, longer: np.ndarray) -> Any:
    """Returns a copy of the data without the examples numbered `longer` of a split, whose
    fingerprint changes; raises `UserError` if none is left.
    """
    stored: Split = data.stored(split)
    remaining = np.delete(np.arange(len(stored.examples)), longer)
    if not len(remaining):
        raise UserError(
            f"config.batch.longer=leave_out: the {split} split has no example of at most"
            " config.batch.max_length tokens; raise it"
        )
    identity = f"{stored.fingerprint} {remaining.tolist()}"
    part = stored._replace(
        rows=[stored.rows[number] for number in remaining.tolist()],
        examples=stored.examples.chosen(remaining),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
    )
    return data.with_splits({split: part})


@dataclass(frozen=True)
class NoData:
    """No data: the source of a run that is to be used before data is named, such as one that `import`
    makes; whatever reads it is told what to add.
    """

    def texts(self, split: str) -> NoReturn:
        """Raises `UserError`, which says how to name data."""
        raise UserError(
            f"this run names no data, so there is no {split} split; add --config.data=text"
            " --config.data.directory=FOLDER (of pairs --config.data=table)"
        )

    pairs = texts
