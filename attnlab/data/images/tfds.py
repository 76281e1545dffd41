"""Images from TensorFlow Datasets, with labels or captions, read without TensorFlow; see
`attnlab.data.tfds`.
"""

import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.data.images.annotated import Captioned
from attnlab.data.images.decoded import stacked
from attnlab.data.images.folder import ImageFiles
from attnlab.data.images.labelled import Labelled
from attnlab.data.prepared import Prepared, as_text, features_of, open_builder
from attnlab.data.readers.images import opened, pixels, resized
from attnlab.errors import UserError

_log = logging.getLogger(__name__)


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
            with opened(io.BytesIO(encoded), name) as image:
                array = resized(pixels(image, name, self.grey), self.side)
            yield name, array, value

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
