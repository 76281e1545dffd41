"""Texts and images from TensorFlow Datasets, with labels or captions, read without TensorFlow and without
a network.

Reading needs the data prepared in a format with random access (array_record, parquet). Preparing a
named set needs TensorFlow, once: `pip install 'attnlab[prepare]'`, then
`python -m attnlab.data.tfds ted_hrlr_translate/pt_to_en --directory data/tfds`.
"""

import argparse
import importlib.util
import io
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.images.annotated import Captioned, Labelled
from attnlab.data.images.files import ImageFiles
from attnlab.data.prepared import Prepared, as_text, features_of, open_builder
from attnlab.data.readers.images import read_image, stacked
from attnlab.errors import UserError, one_line

_RETRIES = 2  # the library's 10 make 205 s of silence where there is no network
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tfds(Prepared):
    """Text features of a prepared dataset: two of them as pairs, the first as texts, one or both
    with a label.

    Pairs with a blank side, which the large crawled sets have, and examples without a label are
    skipped, and their number is logged.

    Attributes:
      source, target: the features of the two languages; `source` alone is read for texts, and
        labelled where `target` is "".
      label: the feature of the labels, named classes or texts; "" for none.
    """

    source: str = "pt"
    target: str = "en"
    label: str = ""

    @property
    def sentences(self) -> int:
        """How many texts a labelled example has."""
        return 2 if self.target else 1

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Reads `split` and returns a list of (source text, target text); leaves out pairs with a
        blank side, whose number it logs, raises `UserError` if no pair is left, and never
        downloads.

        Raises:
          UserError: unknown dataset, split or feature (with near names), or a dataset that is not
            prepared (with the command).
        """
        read = self._complete(
            split, ("source", "target"), "sentence pair", "pairs", "with a blank side"
        )
        return [(source, target) for source, target in read]

    def texts(self, split: str) -> list[str]:
        """Reads the texts of the feature `source` in `split`; raises `UserError` if all are blank.
        Never downloads.

        Raises:
          UserError: as for `pairs`.
        """
        texts = list(self.stream(split))
        if not any(texts):
            raise self.no_record_error(split, "text")
        return texts

    def stream(self, split: str) -> Iterator[str]:
        """The same one by one, none of them kept; there may be no text."""
        return (text for (text,) in self._read(split, "source"))

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Reads the records of `split` and returns a list of ((text,) or (text, second text),
        label); skips records without a text or label, and never downloads.

        Raises:
          UserError: as for `pairs`; also a feature that is no label.
        """
        if not self.label:
            raise UserError(
                "config.data.label is not set: name the feature that holds the labels (and 'source'"
                " and 'target' the texts)"
            )
        fields = (*("source", "target")[: self.sentences], "label")
        read = self._complete(
            split, fields, "labelled text", "examples", "without a label or a text"
        )
        return [(tuple(texts), label) for *texts, label in read]

    def _complete(
        self, split: str, fields: Sequence[str], content: str, things: str, lacking: str
    ) -> list[tuple[str, ...]]:
        """Returns the texts in `fields` of those records of `split` that have all of them, and logs
        how many have not; raises `UserError` if none has.

        Args:
          split: which.
          fields: settings that name the features.
          content: what an error calls a record.
          things, lacking: what the log calls records, and what those have that are skipped.
        """
        read = list(self._read(split, *fields))
        complete = [texts for texts in read if all(texts)]
        if not complete:
            raise self.no_record_error(split, content)
        if skipped := len(read) - len(complete):
            _log.warning("skipped %d %s of %s %s", skipped, things, self.title(), lacking)
        return complete

    def _read(self, split: str, *fields: str) -> Iterator[tuple[str, ...]]:
        """Yields from every record of `split` the texts of the features that the settings `fields`
        name.
        """
        names = [getattr(self, field) for field in fields]
        for values in self.scan(split, *fields):
            yield tuple(map(as_text, values, names))


@dataclass(frozen=True)
class TfdsImages(Prepared, ImageFiles):
    """Images of a prepared dataset, each with a label ("cifar10") or with captions
    ("coco_captions"); without `valid` a part of training is for validation.

    Images without a label, or without a caption, are skipped, and their number is logged.

    Attributes:
      train, valid, test: the split of each, also "train[:90%]"; `valid` is "" for a part of
        training.
      image: the feature of the images, of three channels, or of one where `grey` is true.
      label: that of the labels, named classes, numbers or texts.
      caption: that of the captions, a text or several.
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.
      grey: whether images are read in grey: one channel instead of three.
    """

    least = 0

    valid: str = ""
    image: str = "image"
    label: str = "label"
    caption: str = "captions.text"
    side: int = 32

    def images(self, split: str) -> Labelled:
        """Reads the images of `split` and returns them as `Labelled`, each with its label, without
        those that have none. Never downloads.

        Raises:
          UserError: unknown dataset, split or feature, a dataset that is not prepared or is
            damaged, images of another kind or of different sizes, or none with a label.
        """
        return Labelled(*self._with_texts(split, "label", self._labels))

    def captions(self, split: str) -> Captioned:
        """Reads the images of `split` and returns them as `Captioned`; an image with several captions
        is repeated, once per caption, and one with none left out.

        Raises:
          UserError: as for `images`; also a feature that is no text.
        """
        return Captioned(*self._with_texts(split, "caption", self._texts))

    def _labels(self, value: Any) -> list[str]:
        """Returns a list of one, the label of an image as a str, "" if it has none."""
        is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return [str(value) if is_number else as_text(value, self.label)]

    def _texts(self, value: Any) -> list[str]:
        """Returns the captions of an image as a list, white space as single blanks."""
        several = value if np.ndim(value) else [value]
        return [" ".join(as_text(text, self.caption).split()) for text in several]

    def _with_texts(
        self, split: str, field: str, texts_of: Callable[[Any], list[str]]
    ) -> tuple[np.ndarray, list[str]]:
        """Returns the images of `split` [N,H,W,C], each repeated once per text that is not empty,
        and the list of these N texts, which `texts_of` makes of the feature that the setting
        `field` names. Logs how many images have none; raises `UserError` if all have none.
        """
        images, texts, skipped = [], [], 0
        for name, image, value in self._read_images(split, field):
            of_image = list(filter(None, texts_of(value)))
            images += [(name, image)] * len(of_image)
            texts += of_image
            skipped += not of_image
        if not images:
            raise self.no_record_error(split, f"image with a {field}")
        if skipped:
            _log.warning("skipped %d images of %s without a %s", skipped, self.title(), field)
        return stacked(images), texts

    def _read_images(self, split: str, field: str) -> Iterator[tuple[str, np.ndarray, Any]]:
        """Yields for each image of `split` its name for error messages, its decoded and resized
        array, and the value of the feature that the setting `field` names.
        """
        self._check()
        has_split, rows = bool(self.valid), []
        source = "train" if split == "valid" and not has_split else split

        def chosen(count: int) -> list[int]:
            rows.extend(self.part(split, range(count), has_split))
            return rows

        for number, (encoded, value) in enumerate(self.scan(source, "image", field, rows=chosen)):
            name = f"image {rows[number] + 1} of the {source} split of {self.title()}"
            yield name, read_image(io.BytesIO(encoded), self.side, self.grey, name), value

    def _check(self) -> None:
        """Raises `UserError` if the configured image feature is not a top-level one of uint8 images
        with 3 channels (or 1, with `grey`); an unknown name passes here.
        """
        import tensorflow_datasets as tfds

        feature = features_of(open_builder(self.dataset, self.directory)).get(self.image)
        where = f"config.data.image={self.image!r} of {self.title()}"
        if feature is None:  # whoever reads it says so, with near names
            return
        if not isinstance(feature, tfds.features.Image):
            raise UserError(f"{where} is no feature of images, but {type(feature).__name__}")
        if "." in self.image:
            raise UserError(f"{where} is within another feature; such images are not read here")
        channels = feature.shape[-1]
        if feature.np_dtype != np.uint8 or channels not in (1, 3):
            raise UserError(
                f"{where} has images of {channels} channels, {np.dtype(feature.np_dtype)}; expected"
                " 1 or 3 channels, uint8"
            )
        if channels == 1 and not self.grey:
            raise UserError(f"{where} has images of one channel; set config.data.grey=true")


def prepare(dataset: str, directory: str) -> Path:
    """Downloads a named dataset, writes it as array_record and returns the folder of the prepared
    version; raises `UserError` without TensorFlow or if that fails.

    Raises:
      UserError: TensorFlow is not installed, unknown name, no network, or no room.
    """
    # asked first: it is missed only after the download
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError(
            "preparing a dataset needs TensorFlow, this once: pip install 'attnlab[prepare]'"
            " (reading it later does not)"
        )
    import requests
    from tensorflow_datasets.core.download import downloader

    downloader.MAX_RETRIES = _RETRIES
    builder = open_builder(dataset, directory)
    try:
        builder.download_and_prepare(file_format="array_record")
    except requests.exceptions.RequestException as error:
        raise UserError(f"cannot download dataset {dataset!r}: {error}") from error
    except OSError as error:
        raise UserError(
            f"cannot prepare dataset {dataset!r} in {builder.data_dir}: {error}"
        ) from error
    return Path(builder.data_dir)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that prepares the dataset named in `arguments`: prints its folder and
    returns 0, or prints a one-line error and returns 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m attnlab.data.tfds",
        description="Prepare a dataset, to be read without TensorFlow.",
    )
    parser.add_argument(
        "dataset", help="a name of the TFDS catalogue, e.g. ted_hrlr_translate/pt_to_en"
    )
    parser.add_argument(
        "--directory",
        default="",
        help="where to prepare it; default ~/tensorflow_datasets or $TFDS_DATA_DIR",
    )
    options = parser.parse_args(arguments)
    try:
        print(f"prepared in {prepare(options.dataset, options.directory)}")
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
