"""What is in a prepared dataset of TensorFlow Datasets, record by record, without TensorFlow and without
a network: the base of the sources `tfds` and `tfds_images`.

The data must be prepared in a format with random access (array_record, parquet), see
`attnlab.data.tfds`.
"""

import contextlib
import functools
import importlib
import io
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.errors import UserError, nearest
from attnlab.records.files import expanded

# Older sets are registered only when their subpackage is imported; these hold text pairs.
_OLDER = ("translate", "text", "text_simplification", "summarization")

Rows = Callable[[int], Sequence[int]]


@dataclass(frozen=True)
class Prepared:
    """Base of the sources that read features of a prepared dataset. Not a source by itself.

    Attributes:
      dataset: a name as in the TFDS catalogue, "ted_hrlr_translate/pt_to_en" or
        "wmt14_translate/de-en:1.0.0".
      directory: where datasets are prepared ("" for the library's own default,
        ~/tensorflow_datasets or $TFDS_DATA_DIR), or the folder of one prepared version (the one
        with dataset_info.json), which needs no `dataset`.
      train, valid, test: the split of each, also "train[:90%]".
    """

    dataset: str = ""
    directory: str = ""
    train: str = "train"
    valid: str = "validation"
    test: str = "test"

    def scan(self, split: str, *fields: str, rows: Rows | None = None) -> Iterator[tuple[Any, ...]]:
        """Yields from each record of `split`, or those that `rows` selects, a tuple of the features
        that the settings named `fields` name, with classes as names and images as encoded bytes.
        Numbers of classes come as their names, images as the bytes of their files, all else as the
        library gives it.

        Args:
          split: a field that names one.
          fields: names of features stand in them; "captions.text" is one within another.
          rows: from the number of records, which of them to read; None for all.

        Raises:
          UserError: unknown dataset, split or feature (with near names), or a dataset that is not
            prepared (with the command), or that is damaged.
        """
        builder = open_builder(self.dataset, self.directory)
        names, features = [getattr(self, field) for field in fields], features_of(builder)
        for field, name in zip(fields, names, strict=True):
            if name not in features:
                raise UserError(
                    f"config.data.{field}={name!r} is no feature of {self.title()};"
                    f" {nearest(name, features)}"
                )
        records = self._records(builder, split)
        chosen = range(len(records)) if rows is None else rows(len(records))
        for record in _checked_records(records, chosen, builder.data_dir):
            values = (functools.reduce(operator.getitem, n.split("."), record) for n in names)
            yield tuple(map(_class_name, values, map(features.__getitem__, names)))

    def no_record_error(self, split: str, content: str) -> UserError:
        """Returns (does not raise) a `UserError` for a split that has no record of what is
        wanted.
        """
        where = f"config.data.{split}={getattr(self, split)!r}"
        return UserError(f"{where}: {self.title()} has no {content} there")

    def title(self) -> str:
        """What an error calls the dataset."""
        return f"dataset {self.dataset!r}" if self.dataset else f"the dataset in {self.directory}"

    def _records(self, builder: Any, split: str) -> Any:
        """Returns the records of `split` with random access; raises `UserError`, which says what to
        do, if the split does not exist or the dataset is not prepared.
        """
        expression = getattr(self, split)
        try:
            return builder.as_data_source(split=expression, decoders=_raw_image_decoders(builder))
        # what the library says of data that is not there, and of tfrecord
        except NotImplementedError as error:
            if builder.is_prepared():
                advice = (
                    "prepare it anew, as array_record, in another --directory with python -m"
                    " attnlab.data.tfds"
                )
                raise UserError(
                    f"{self.title()} in {builder.data_dir} is in a format without random access;"
                    f" {advice}"
                ) from error
            raise self._unprepared(builder) from error
        except (ValueError, KeyError, AssertionError) as error:
            if not builder.info.splits:
                raise self._unprepared(builder) from error
            if "0 length" in str(error):  # what the library says of a part without a record
                raise UserError(
                    f"config.data.{split}={expression!r} of {self.title()} has no record; take a"
                    " larger part"
                ) from error
            hint = nearest(expression, builder.info.splits)
            raise UserError(
                f"config.data.{split}={expression!r} is no split of {self.title()} ({error});"
                f" {hint}"
            ) from error
        except OSError as error:
            raise UserError(f"cannot read {self.title()} in {builder.data_dir}: {error}") from error

    def _unprepared(self, builder: Any) -> UserError:
        return unprepared(self.title(), builder.data_dir, self.dataset, self.directory)


def open_builder(dataset: str, directory: str) -> Any:
    """Returns the TFDS builder of the prepared version in the folder `directory`, or else of the
    dataset named `dataset` there; raises `UserError` if there is none. Needs no network.

    Raises:
      UserError: no such dataset, config or version, or code that imports what is not there.
    """
    import tensorflow_datasets as tfds
    from google.protobuf.json_format import ParseError

    folder = expanded(directory)
    try:
        if directory and (folder / "dataset_info.json").is_file():
            return tfds.builder_from_directory(folder)
        _check_name(dataset, directory)
        return _named_builder(dataset, directory, str(folder) if directory else None)
    except (
        ValueError,
        OSError,
        AssertionError,
        ImportError,
        ParseError,
        tfds.core.dataset_info.DatasetInfoFileError,
    ) as error:
        raise UserError(
            f"config.data.dataset={dataset!r}, config.data.directory={directory!r}: {error}"
        ) from error


def _check_name(dataset: str, directory: str) -> None:
    """Raises `UserError` for no name or one that is not name[/config][:version], such as one with a
    namespace, which the library would look up on the network.
    """
    if not dataset:
        where = f"; {directory} is none, it has no dataset_info.json" if directory else ""
        raise UserError(
            "set config.data.dataset to a name of the TFDS catalogue, or config.data.directory to"
            f" a prepared version{where}"
        )
    if not re.fullmatch(r"\w+(/[\w.+-]+)*(:[\d.*]+)?", dataset):
        raise UserError(
            f"config.data.dataset={dataset!r} is no name[/config][:version]; read other sets by"
            " config.data.directory alone"
        )


def _named_builder(dataset: str, directory: str, folder: str | None) -> Any:
    """Returns the builder of the registered dataset of this name in a folder (None: the library's
    own), after importing older subpackages if the name is not found; raises `UserError` for an
    unknown name or config.
    """
    import tensorflow_datasets as tfds

    try:
        return _builder_from_code(dataset, directory, folder)
    except (ValueError, tfds.core.DatasetNotFoundError):  # no such config, or not yet such a name
        for name in _OLDER:
            importlib.import_module(f"tensorflow_datasets.{name}")
    name, _, config = dataset.partition(":")[0].partition("/")
    try:
        configs = tfds.builder_cls(name).builder_configs
    except tfds.core.DatasetNotFoundError as error:
        hint = nearest(name, tfds.list_builders(with_community_datasets=False))
        if hint.startswith("choose"):  # hundreds of names help nobody
            hint = "see https://www.tensorflow.org/datasets/catalog for the names"
        raise UserError(
            f"config.data.dataset={dataset!r}: there is no dataset {name!r}; {hint}"
        ) from error
    if config and config not in configs:
        raise UserError(
            f"config.data.dataset={dataset!r}: {name} has no config {config!r};"
            f" {nearest(config, configs)}"
        )
    return _builder_from_code(dataset, directory, folder)


def _builder_from_code(dataset: str, directory: str, folder: str | None) -> Any:
    """Returns the builder of a dataset from its code, with data in a folder (None: the library's
    own), or, if the code needs TensorFlow, which is missing, a read-only one from the prepared
    files; raises `UserError` if there are none.
    """
    import tensorflow_datasets as tfds

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the library tells of TensorFlow at length
            return tfds.builder(dataset, data_dir=folder)
    except ModuleNotFoundError as error:
        if "'tensorflow'" not in str(error):
            raise
    try:
        return tfds.core.read_only_builder.builder_from_files(dataset, data_dir=folder)
    except tfds.core.DatasetNotFoundError as error:
        where = folder or tfds.core.constants.DATA_DIR
        raise unprepared(f"dataset {dataset!r}", where, dataset, directory) from error


def unprepared(title: str, where: str, dataset: str, directory: str) -> UserError:
    """Returns (does not raise) a `UserError` for a dataset, called `title` and looked for in
    `where`, that is not prepared, with the command that prepares it.
    """
    flag = f" --directory {directory}" if directory else ""
    command = (
        f"pip install 'attnlab[prepare]' && python -m attnlab.data.tfds {dataset or 'NAME'}{flag}"
    )
    return UserError(f"{title} is not prepared in {where}; prepare it once: {command}")


def features_of(builder: Any) -> dict[str, Any]:
    """Returns all features of a dataset by name, nested ones with dotted names such as
    "captions.text".
    """

    def flattened(features: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        """Yields (dotted name, feature) of these features and, recursively, of those inside them;
        names begin with `prefix`.
        """
        for name, feature in features.items():
            yield prefix + name, feature
            inside = getattr(feature, "feature", feature)  # of what it is a sequence
            if hasattr(inside, "items"):
                yield from flattened(inside, f"{prefix}{name}.")

    return dict(flattened(builder.info.features or {}, ""))


def _raw_image_decoders(builder: Any) -> dict[str, Any] | None:
    """Returns a dict of decoder settings, by the name of each top-level image feature, with which
    the library leaves images as encoded bytes, or None if the dataset has none.
    """
    import tensorflow_datasets as tfds

    images = [
        name
        for name, feature in (builder.info.features or {}).items()
        if isinstance(feature, tfds.features.Image)
    ]
    return {name: tfds.decode.SkipDecoding() for name in images} or None


def _checked_records(records: Any, rows: Sequence[int], folder: str) -> Iterator[Mapping[str, Any]]:
    """Yields the records with the numbers `rows`, in this order; raises `UserError`, which names
    their folder, if their files are damaged.
    """
    for i in rows:
        try:
            yield records[i]
        # the reader's word for a truncated or altered file
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"the dataset prepared in {folder} is damaged: {error}; delete the folder and"
                " prepare it again"
            ) from error


def _class_name(value: Any, feature: Any) -> Any:
    """Returns the name of the class of a feature's value, a number ("" for one below 0, no label);
    the value unchanged if the feature has no class names.
    """
    if not hasattr(feature, "int2str") or np.ndim(value):
        return value
    return feature.int2str(int(value)) if int(value) >= 0 else ""


def as_text(value: Any, feature: str) -> str:
    """Decodes the value of a text feature to a str without white space at its ends; raises
    `UserError`, which names the feature, if it is no text or not UTF-8.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"feature {feature!r} holds a text that is not UTF-8: {value[:60]!r}"
            ) from error
    if not isinstance(value, str):
        raise UserError(f"feature {feature!r} is no text, but {type(value).__name__}")
    return value.strip()
