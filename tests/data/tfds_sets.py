"""Base of the small sets of TensorFlow Datasets that tests prepare."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

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
