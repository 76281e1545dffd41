"""From config to encoded sentence pairs: source, vocabularies, ids, and a fingerprint of what was
read.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from attnlab.config import read_settings
from attnlab.config.registry import build
from attnlab.config.schema import Node
from attnlab.data import SOURCES, read_splits
from attnlab.data.columns import Examples
from attnlab.data.settings import TwoVocabularies
from attnlab.data.vocabulary import TOKENIZER, Vocabulary
from attnlab.errors import UserError

Pair = tuple[str, str]

_FOLDER = "vocabulary"
_log = logging.getLogger(__name__)
_SIDES = ("source", "target")


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(TwoVocabularies):
    """The config node `vocabulary`, see `attnlab.data.settings`, and what each side makes of it."""

    @classmethod
    def read(cls, node: Mapping[str, Any] | Node) -> VocabularySettings:
        """The settings in a config node; what it leaves out has its default.

        Raises:
          UserError: unknown key, a value of the wrong type, or one vocabulary of two kinds.
        """
        return read_settings(cls, node, "vocabulary")

    @property
    def of_one(self) -> dict[str, Any]:
        """The arguments of `Vocabulary.train`, which are also a trained vocabulary's `settings`;
        the source's where there are two.
        """
        return {
            "kind": self.kind,
            "size": self.size,
            "min_frequency": self.min_frequency,
            "lowercase": self.lowercase,
            **({"reserved": self.reserved} if self.reserved else {}),
            **({"file": self.file} if self.kind == TOKENIZER else {}),
        }

    @property
    def of_target(self) -> dict[str, Any]:
        """The same of the target."""
        return {**self.of_one, "kind": self.target_kind or self.kind}


class OfRows:
    """Base of the data of runs whose sources give rows, which are read with one vocabulary."""

    kept: ClassVar[str] = "vocabulary"
    rows: Mapping[str, Sequence[Any]]
    vocabulary: Vocabulary

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that were read."""
        return tuple(self.rows)

    def size(self, split: str) -> int:
        """The number of rows."""
        return len(self.rows[split])

    def save(self, workdir: Path) -> None:
        """Keep the vocabulary with a run."""
        save_vocabularies((self.vocabulary, self.vocabulary), workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return has_vocabularies(workdir)


@dataclass(frozen=True)
class Corpus(OfRows):
    """The data of a run.

    Attributes:
      pairs: split to its (source, target) texts as read, the references of an evaluation.
      examples: split to the same pairs as ids.
      source_vocabulary, target_vocabulary: one object where they are shared.
      fingerprints: split to the `fingerprint` of its pairs, for the manifest.
    """

    things: ClassVar[str] = "pairs"

    pairs: Mapping[str, Sequence[Pair]]
    examples: Mapping[str, Examples]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    def counts(self, split: str) -> dict[str, int]:
        """Pairs, and per side the tokens (EOS included), the unknown ones, and the length of the
        longest text.
        """
        counts = {"pairs": len(self.examples[split])}
        vocabularies = self.source_vocabulary, self.target_vocabulary
        for side, vocabulary in zip(_SIDES, vocabularies, strict=True):
            packed = self.examples[split].packed(side)
            unknown = vocabulary.special.unknown(packed.ids)
            counts |= {
                f"{side}_tokens": len(packed.ids),
                f"{side}_unknown": unknown,
                f"{side}_longest": int(packed.lengths.max()),
            }
        return counts

    @property
    def rows(self) -> Mapping[str, Sequence[Pair]]:  # type: ignore[override]
        """The pairs."""
        return self.pairs

    def about(self, split: str) -> str:
        """Pairs, tokens and unknown tokens in a line."""
        counts = self.counts(split)
        sides = (
            f"{side} {counts[f'{side}_tokens']:,} tokens ({counts[f'{side}_unknown']:,} unknown)"
            for side in _SIDES
        )
        return f"{counts['pairs']:,} pairs, {', '.join(sides)}"

    def save(self, workdir: Path) -> None:
        """Keep the vocabularies with a run."""
        save_vocabularies((self.source_vocabulary, self.target_vocabulary), workdir)


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: str | Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
) -> Corpus:
    """Read the splits of a source and encode them.

    Vocabularies come from `<workdir>/vocabulary/` if they are there. Else they are learned, on the
    training split and nothing else; `save_vocabularies` keeps them. Nothing is written here. A
    shared one is that of the run `begun` where it fits, or the tokenizer in a file
    (`inherited_vocabulary`).

    Args:
      data: the config node of the source, `{"name": "files", "directory": ...}`.
      vocabulary: the config node of `VocabularySettings`.
      workdir: of the run.
      splits: which to read; also read, but not returned, is "train" where a vocabulary has to be
        learned.

    Raises:
      UserError: bad config, unreadable data, or a saved vocabulary that is damaged or of other
        settings.
    """
    source = giving(data, "pairs")
    settings = VocabularySettings.read(vocabulary)
    stored = (
        load_vocabularies(workdir, settings)
        if workdir is not None and has_vocabularies(workdir)
        else None
    )
    if stored is None and settings.shared:
        both = inherited_vocabulary(begun, settings)
        stored = None if both is None else (both, both)
    pairs = read_splits(source.pairs, splits, learn=stored is None)
    vocabularies = stored or _learn(pairs["train"], settings)
    pairs = {split: pairs[split] for split in splits}
    return Corpus(
        pairs,
        {split: encode(vocabularies, chosen) for split, chosen in pairs.items()},
        *vocabularies,
        fingerprints={split: fingerprint(chosen) for split, chosen in pairs.items()},
    )


def encode(vocabularies: tuple[Vocabulary, Vocabulary], pairs: Sequence[Pair]) -> Examples:
    """Texts to ids, EOS at the end of both sides and before them what the vocabulary puts there; for
    sentences without a translation, give "" as their target.
    """
    source, target = (
        vocabulary.packed((pair[side] for pair in pairs), vocabulary.special.front)
        for side, vocabulary in enumerate(vocabularies)
    )
    return Examples(source=source, target=target)


def giving(data: Mapping[str, Any], method: str, examples: str = "") -> Any:
    """The source of a config node; `UserError` unless it has this method. `examples` names some
    that have.
    """
    source = build(SOURCES, data, "config.data")()
    if not callable(getattr(source, method, None)):
        hint = f"such as {examples}" if examples else "see attnlab.data"
        raise UserError(
            f"config.data={data['name']}: a data source for this task needs a method"
            f" {method}(split), {hint}"
        )
    return source


def fingerprint_of_rows(rows: Iterable[tuple[Any, ...]], first: str = "") -> str:
    """SHA-256 (hex) of rows in their order; and of how they are read, if that is to be told."""
    digest = hashlib.sha256(first.encode())
    for row in rows:
        digest.update(repr(tuple(row)).encode())
    return digest.hexdigest()


def fingerprint(pairs: Iterable[Pair]) -> str:
    """SHA-256 (hex) of the pairs in their order; the lengths are part of it, so no text can pose as
    the end of another.
    """
    digest = hashlib.sha256()
    for source, target in pairs:
        digest.update(f"{len(source)} {len(target)} {source}{target}".encode())
    return digest.hexdigest()


def has_vocabularies(workdir: str | Path) -> bool:
    """Whether a run has saved its vocabularies in `workdir`, all of them."""
    folder = Path(workdir) / _FOLDER
    return (folder / "shared.json").exists() or all(
        (folder / f"{side}.json").exists() for side in _SIDES
    )


def inherited_vocabulary(begun: Path | None, settings: VocabularySettings) -> Vocabulary | None:
    """A vocabulary that no text is needed for: that of the run whose weights another begins with,
    so that ids mean the same, or the tokenizer in a file. None where one has to be learned; it is
    logged where the settings ask for another one than that of the run.

    Raises:
      UserError: a tokenizer that cannot be read.
    """
    if begun is not None and has_vocabularies(begun):
        vocabulary = load_vocabularies(begun)[0]
        if vocabulary.settings == settings.of_one:
            return vocabulary
        flags = " ".join(f"--config.vocabulary.{key}={v}" for key, v in vocabulary.settings.items())
        _log.warning(
            "%s has another vocabulary than config.vocabulary asks for, so its embeddings cannot be"
            " taken; %s would take it",
            begun,
            flags,
        )
    return Vocabulary.train((), **settings.of_one) if settings.kind == TOKENIZER else None


def saved_or_inherited(
    workdir: str | Path | None, settings: VocabularySettings, begun: Path | None
) -> Vocabulary | None:
    """The vocabulary that a run has saved, else `inherited_vocabulary`; `UserError` as for either."""
    if workdir is not None and has_vocabularies(workdir):
        return load_vocabularies(workdir, settings)[0]
    return inherited_vocabulary(begun, settings)


def load_vocabularies(
    workdir: str | Path, settings: VocabularySettings | None = None
) -> tuple[Vocabulary, Vocabulary]:
    """The (source, target) vocabularies saved in `workdir`; one object twice where they are shared.

    Raises:
      UserError: missing, damaged, or of other settings than `settings`, if those are given.
    """
    folder = Path(workdir) / _FOLDER
    shared = (folder / "shared.json").exists()
    if shared:
        both = Vocabulary.load(folder / "shared.json")
        vocabularies = (both, both)
    else:
        vocabularies = (
            Vocabulary.load(folder / "source.json"),
            Vocabulary.load(folder / "target.json"),
        )
    if settings is not None:
        saved = {
            **vocabularies[0].settings,
            "shared": shared,
            "target_kind": vocabularies[1].settings["kind"],
        }
        _check_settings(saved, settings, folder)
    return vocabularies


def _check_settings(saved: Mapping[str, Any], settings: VocabularySettings, folder: Path) -> None:
    """The saved vocabularies must be the ones that the config asks for."""
    wanted = {
        **settings.of_one,
        "shared": settings.shared,
        "target_kind": settings.of_target["kind"],
    }
    differing = [
        f"{key} is {saved.get(key)!r} there and {wanted[key]!r} here"
        for key in wanted
        if saved.get(key) != wanted[key]
    ]
    if differing:
        raise UserError(
            f"{folder} was made with other settings than config.vocabulary: {', '.join(differing)};"
            " take another workdir"
        )


def _learn(pairs: Sequence[Pair], settings: VocabularySettings) -> tuple[Vocabulary, Vocabulary]:
    """Vocabularies of the training pairs."""
    if settings.shared:
        both = Vocabulary.train(itertools.chain.from_iterable(pairs), **settings.of_one)
        return both, both
    source = Vocabulary.train((source for source, _ in pairs), **settings.of_one)
    return source, Vocabulary.train((target for _, target in pairs), **settings.of_target)


def save_vocabularies(vocabularies: tuple[Vocabulary, Vocabulary], workdir: Path) -> None:
    """Both vocabularies, or the shared one, into `<workdir>/vocabulary/`."""
    source, target = vocabularies
    if source is target:
        source.save(workdir / _FOLDER / "shared.json")
    else:
        source.save(workdir / _FOLDER / "source.json")
        target.save(workdir / _FOLDER / "target.json")
