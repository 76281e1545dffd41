"""The base of the small sets of TensorFlow Datasets that tests prepare, and a set of images."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

library: Any = pytest.importorskip("tensorflow_datasets")


class TinySet(library.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc]
    """A set whose records follow from their numbers."""

    VERSION = library.core.Version("1.0.0")
    numbers: ClassVar[dict[str, range]] = {}  # of the records of each split

    def features(self, of: Any) -> dict[str, Any]:
        """Of a record, given the library's."""
        raise NotImplementedError

    def record(self, number: int) -> dict[str, Any]:
        raise NotImplementedError

    def _info(self) -> Any:
        features = library.features.FeaturesDict(self.features(library.features))
        return library.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(of) for split, of in self.numbers.items()}

    def _generate_examples(self, numbers: range) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((number, self.record(number)) for number in numbers)

    @classmethod
    def prepared(cls, folder: Path) -> Path:
        """The data directory, once it holds the set as array_record."""
        cls(data_dir=folder, file_format="array_record").download_and_prepare()
        return folder


def encoded(pixels: np.ndarray) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def pixels(number: int, size: tuple[int, ...] = (4, 6)) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8)


class AttnlabTinyImages(TinySet):
    """Ten images of training and three of the test; image k has k mod 3 captions and the class k
    mod 2, but that of image 4 is not known.
    """

    numbers = {"train": range(10), "test": range(10, 13)}
    needs: str | None = None  # a module that its code asks for and that is not there

    def features(self, of: Any) -> dict[str, Any]:
        if self.needs:
            raise ModuleNotFoundError(f"No module named {self.needs!r}")
        kind = of.ClassLabel(names=["even", "odd"])
        return {
            **{name: of.Image() for name in ("image", "sizes", "broken")},
            "grey": of.Image(shape=(4, 6, 1)),
            "clear": of.Image(shape=(None, None, 4)),
            "deep": of.Image(shape=(None, None, 1), dtype=np.uint16),
            "label": kind,
            "number": of.Scalar(dtype=np.int64),
            "share": of.Scalar(dtype=np.float32),
            "captions": of.Sequence({"text": of.Text(), "id": np.int64, "kind": kind}),
            "pair": {"en": of.Text(), "kind": kind},
            **{"title": of.Text(), "blank": of.Text()},
        }

    def record(self, number: int) -> dict[str, Any]:
        image = encoded(pixels(number))
        texts = [f" Image {number},\n text {j} " for j in range(number % 3)]
        return {
            **dict.fromkeys(("image", "clear", "deep"), image),
            "grey": encoded(pixels(number)[..., 0]),
            "sizes": encoded(pixels(number, (4, 6) if number != 7 else (5, 6))),
            "broken": image[: len(image) // 2] if number == 11 else image,
            "label": -1 if number == 4 else number % 2,
            "number": number,
            "share": 0.5,
            "captions": [{"text": text, "id": j, "kind": j} for j, text in enumerate(texts)],
            "pair": {"en": f"record {number}", "kind": number % 2},
            "title": f"Title {number}",
            "blank": " ",
        }
