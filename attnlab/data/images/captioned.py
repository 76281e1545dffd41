"""From config to images with captions: source, vocabulary, mean and deviation, ids, and a fingerprint
of what was read; and a source of files: a folder of images and a file of captions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnlab.config.schema import Node
from attnlab.data import read_splits
from attnlab.data.columns import Examples
from attnlab.data.corpus import VocabularySettings, giving
from attnlab.data.files import find_file, read_lines
from attnlab.data.images.annotated import Captioned, Shown
from attnlab.data.images.folder import ImageFiles
from attnlab.data.images.labelled import Learned, check_images, fingerprint
from attnlab.data.json_lines import object_of, text_of
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

_VOCABULARY = Path("vocabulary") / "target.json"


@dataclasses.dataclass(frozen=True)
class CaptionData:
    """The data of a run.

    Attributes:
      captions: split to its captions as read.
      examples: split to its columns: "source", the images, and "target", the ids of the captions.
      vocabulary: of the captions.
      learned: size, mean and deviation of the images; no classes.
      shown: split to what the words are about, where the source knows that.
      fingerprints: split to the hash of its images and captions, for the manifest.
    """

    kept: ClassVar[str] = "vocabulary, mean and deviation"
    things: ClassVar[str] = "captions"

    captions: Mapping[str, Sequence[str]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    learned: Learned
    shown: Mapping[str, Shown] = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that were read."""
        return tuple(self.captions)

    def size(self, split: str) -> int:
        """The number of captions."""
        return len(self.captions[split])

    def about(self, split: str) -> str:
        """Number and size of the images, and tokens, in a line."""
        height, width, channels = self.learned.shape
        ids = self.examples[split].packed("target").ids
        return (
            f"{self.size(split):,} images of {height} x {width} x {channels};"
            f" {len(ids):,} tokens ({self.vocabulary.special.unknown(ids):,} unknown)"
        )

    def save(self, workdir: Path) -> None:
        """Keep vocabulary, size, mean and deviation with a run."""
        self.learned.save(workdir)
        self.vocabulary.save(workdir / _VOCABULARY)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return (workdir / _VOCABULARY).exists() and Learned.saved(workdir)


def source(data: Mapping[str, Any]) -> Any:
    """The source of a config node; `UserError` unless its images have captions."""
    return giving(data, "captions", "scenes, caption_folder, coco_captions or tfds_images")


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
) -> CaptionData:
    """Read the splits of a source and encode its captions.

    Vocabulary, mean and deviation come from `<workdir>/vocabulary/` if they are there. Else they
    are learned, on the training split and nothing else; `CaptionData.save` keeps them.

    Raises:
      UserError: bad config, unreadable data, images of several sizes, or what was saved is damaged
        or of other settings.
    """
    of, where = source(data), f"config.data={data['name']}"
    settings = VocabularySettings.read(vocabulary).of_one
    folder = workdir if workdir is not None and CaptionData.saved(workdir) else None
    by_split = read_splits(
        lambda split: _checked(of.captions(split), f"{where}: the {split} split"),
        splits,
        learn=folder is None,
    )
    if folder is not None:
        learned, vocab = Learned.load(folder), Vocabulary.load(folder / _VOCABULARY)
        if vocab.settings != settings:
            raise UserError(
                f"{folder / _VOCABULARY} was made with other settings than config.vocabulary; take"
                " another workdir"
            )
    else:
        learned = Learned.of_images(by_split["train"].images)
        vocab = Vocabulary.train(by_split["train"].captions, **settings)
    for split, part in by_split.items():
        learned.check(part.images, f"{where}: the {split} split")
    chosen = {split: by_split[split] for split in splits}
    return CaptionData(
        {split: part.captions for split, part in chosen.items()},
        {split: encoded(vocab, part.images, part.captions) for split, part in chosen.items()},
        vocab,
        learned,
        {split: part.shown for split, part in chosen.items() if part.shown is not None},
        {split: fingerprint(part.images, part.captions) for split, part in chosen.items()},
    )


def encoded(vocabulary: Vocabulary, images: np.ndarray, captions: Sequence[str]) -> Examples:
    """The columns of images with captions, EOS at the end of each."""
    return Examples(source=images, target=vocabulary.packed(captions))


def _checked(given: Captioned, where: str) -> Captioned:
    """What a source gave; `UserError` for something else."""
    check_images(given.images, where)
    if len(given.images) != len(given.captions):
        raise UserError(
            f"{where} has {len(given.images)} images and {len(given.captions)} captions"
        )
    return given


@dataclasses.dataclass(frozen=True)
class CaptionFolder(ImageFiles):
    """A folder of PNG and JPEG files, and a file of captions for each split: JSON lines with the
    fields "file" and "caption" (a name that ends in .jsonl), or "file TAB caption" (any other).

    A file may have several captions, each an example; none of them is then held out without the
    others.

    Attributes:
      directory: where the images lie, and the files of captions; "" for the current folder.
      train, test: names of the files of captions.
      valid: that of validation; "" for a part of the images of training (`held_out`).
    """

    train: str = "train.tsv"
    valid: str = ""
    test: str = "test.tsv"

    def captions(self, split: str) -> Captioned:
        """The images of `split`, each with a caption.

        Raises:
          UserError: a file that is missing, a line without a name or a caption, an image that is
            missing or damaged; with file and line.
        """
        own = bool(self.valid) or split == "test"
        path = find_file(self.directory, getattr(self, split if own else "train"))
        lines = _lines(path)
        names = {*self.part(split, list(dict.fromkeys(name for _, name, _ in lines)), own)}
        lines = [line for line in lines if line[1] in names]
        images: dict[str, np.ndarray] = {}
        for number, name, _ in lines:
            if name not in images:
                try:
                    images[name] = self.read(path.parent / name)
                except UserError as error:
                    raise UserError(f"{path}, line {number}: {error}") from error
        return Captioned(
            np.stack([images[name] for _, name, _ in lines]), [text for _, _, text in lines]
        )


def _lines(path: Path) -> list[tuple[int, str, str]]:
    """Number of the line, name of the image and caption, of every line that is not blank."""
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        if not line:
            continue
        if path.name.removesuffix(".gz").removesuffix(".xz").endswith(".jsonl"):
            record = object_of(line, path, number)
            name, caption = (text_of(record, field, path, number) for field in ("file", "caption"))
        else:
            name, _, caption = (part.strip() for part in line.partition("\t"))
            if not name or not caption:
                raise UserError(
                    f"{path}, line {number}: expected 'file TAB caption', both not empty"
                )
        rows.append((number, name, caption))
    if not rows:
        raise UserError(f"{path} holds nothing but blank lines")
    return rows
