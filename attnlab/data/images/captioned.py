"""Images with captions; and a source of files: a folder of images and a file of captions."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.dataset import Dataset, Split
from attnlab.data.files import find_file, read_lines
from attnlab.data.images.annotated import Captioned
from attnlab.data.images.folder import ImageFiles
from attnlab.data.images.labelled import check_images, fingerprint
from attnlab.data.json_lines import objects_of, text_of
from attnlab.data.learned import Learned
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError


class CaptionData(Dataset[str]):
    """The data of a run of captioning; rows are captions, columns "source", the images, and "target",
    the ids of the captions; `extra` has what the words are about, where the source knows that.
    """

    method = "captions"
    such_as = "scenes, caption_folder, coco_captions or tfds_images"
    things = "captions"
    kept = "vocabulary, mean and deviation"
    parts = ("target", "images")

    def checked(self, content: Captioned, split: str) -> Captioned:
        """Returns the images and captions of a split unchanged; raises `UserError` for bad images,
        or unless there are as many images as captions. See `Dataset.checked`.
        """
        images, captions, _ = content
        check_images(images, self.where(split))
        if len(images) != len(captions):
            raise UserError(
                f"{self.where(split)} has {len(images)} images and {len(captions)} captions"
            )
        return content

    def learn(self, by_split: Mapping[str, Captioned]) -> Learned:
        """Trains the vocabulary on the training captions and returns a `Learned` with it and the
        shape, mean and deviation of the images. See `Dataset.learn`.
        """
        images, captions, _ = by_split["train"]
        vocabulary = Vocabulary.train(captions, **self.settings.arguments)
        return Learned(target=vocabulary).with_images(images)

    def encoded(self, content: Captioned, split: str) -> Split:
        """Encodes a split as a `Split` with "source" (images) and "target" (ids of captions); raises
        `UserError` if the images differ in shape from training. See `Dataset.encoded`.
        """
        images, captions, shown = content
        self.learned.check(images, self.where(split))
        examples = encoded(self.vocabulary, images, captions)
        return Split(captions, examples, fingerprint(images, captions), shown)

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the number and size of its images, its tokens and
        unknown tokens.
        """
        ids = self.examples[split].packed("target").ids
        return (
            f"{self.size(split):,} images of {self.learned.size};"
            f" {len(ids):,} tokens ({self.vocabulary.special.unknown(ids):,} unknown)"
        )


def encoded(vocabulary: Vocabulary, images: np.ndarray, captions: Sequence[str]) -> Examples:
    """The columns of images with captions, EOS at the end of each."""
    return Examples(source=images, target=vocabulary.packed(captions))


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
        """Reads the captions of `split` and returns them as `Captioned`, with one image per
        caption, read once where several captions share it; without a file for "valid", some
        training images are held out for it.

        Raises:
          UserError: a file that is missing, a line without a name or a caption, an image that is
            missing or damaged; with file and line.
        """
        has_file = bool(self.valid) or split == "test"
        path = find_file(self.directory, getattr(self, split if has_file else "train"))
        lines = _lines(path)
        names = {*self.part(split, list(dict.fromkeys(name for _, name, _ in lines)), has_file)}
        lines = [line for line in lines if line[1] in names]
        row_of = {name: row for row, name in enumerate(dict.fromkeys(name for _, name, _ in lines))}
        first = {path.parent / name: where for where, name, _ in reversed(lines)}

        def read(file: Path) -> np.ndarray:
            """Reads an image; raises `UserError` with the line that names it first."""
            try:
                return self.read(file)
            except UserError as error:
                raise UserError(f"{first[file]}: {error}") from error

        images = self.read_all([path.parent / name for name in row_of], read)
        rows = [row_of[name] for _, name, _ in lines]
        return Captioned(images[rows], [text for _, _, text in lines])


def _lines(path: Path) -> list[tuple[str, str, str]]:
    """Returns a list of (location for error messages, image name, caption), one for each line of a
    captions file that is not blank; raises `UserError` if a line lacks the name or the caption, or
    if all lines are blank.
    """
    if path.name.removesuffix(".gz").removesuffix(".xz").endswith(".jsonl"):
        rows = [
            (where, text_of(record, "file", where), text_of(record, "caption", where))
            for where, record in objects_of(path)
        ]
    else:
        rows = [
            (f"{path}, line {number}", *_cells(line, f"{path}, line {number}"))
            for number, line in enumerate(read_lines(path), 1)
            if line
        ]
    if not rows:
        raise UserError(f"{path} holds nothing but blank lines")
    return rows


def _cells(line: str, where: str) -> tuple[str, str]:
    """Splits a line at the first tab into the image name and the caption; raises `UserError` if one
    is blank.
    """
    name, _, caption = (part.strip() for part in line.partition("\t"))
    if not name or not caption:
        raise UserError(f"{where}: expected 'file TAB caption', both not empty")
    return name, caption
