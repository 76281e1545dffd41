"""Sentence pairs from TensorFlow Datasets, read without TensorFlow and without a network.

Reading needs the data prepared in a format with random access (array_record, parquet). Preparing a
named set needs TensorFlow, once:

    pip install 'attnlab[prepare]'
    python -m attnlab.data.tfds ted_hrlr_translate/pt_to_en --directory data/tfds
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.errors import UserError, nearest, told
from attnlab.records.files import expanded

# Older sets are registered only when their subpackage is imported; these hold text pairs.
_OLDER = ("translate", "text", "text_simplification", "summarization")
_RETRIES = 2  # the library's 10 make 205 s of silence where there is no network
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tfds:
    """Text features of a prepared dataset: two of them as pairs, the first as texts, one or both
    with a label.

    Pairs with a blank side, which the large crawled sets have, and examples without a label are
    skipped, and their number is logged.

    Attributes:
      dataset: a name as in the TFDS catalogue, "ted_hrlr_translate/pt_to_en" or
        "wmt14_translate/de-en:1.0.0".
      directory: where datasets are prepared ("" for the library's own default,
        ~/tensorflow_datasets or $TFDS_DATA_DIR), or the folder of one prepared version (the one
        with dataset_info.json), which needs no `dataset`.
      train, valid, test: the split of each, also "train[:90%]".
      source, target: the features of the two languages; `source` alone is read for texts, and
        labelled where `target` is "".
      label: the feature of the labels, named classes or texts; "" for none.
    """

    dataset: str = ""
    directory: str = ""
    train: str = "train"
    valid: str = "validation"
    test: str = "test"
    source: str = "pt"
    target: str = "en"
    label: str = ""

    @property
    def sentences(self) -> int:
        """How many texts a labelled example has."""
        return 2 if self.target else 1

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """The (source, target) texts of `split`. Never downloads.

        Raises:
          UserError: unknown dataset, split or feature (with near names), or a dataset that is not
            prepared (with the command).
        """
        read = [(source, target) for source, target in self._read(split, "source", "target")]
        kept = [pair for pair in read if all(pair)]
        if not kept:
            raise UserError(
                f"config.data.{split}={getattr(self, split)!r}: {_title(self)} has no sentence pair"
                " there"
            )
        if len(kept) < len(read):
            _log.warning(
                "skipped %d pairs of %s with a blank side", len(read) - len(kept), _title(self)
            )
        return kept

    def texts(self, split: str) -> list[str]:
        """The texts of the feature `source` in `split`. Never downloads.

        Raises:
          UserError: as for `pairs`.
        """
        found = list(self.stream(split))
        if not any(found):
            raise UserError(
                f"config.data.{split}={getattr(self, split)!r}: {_title(self)} has no text there"
            )
        return found

    def stream(self, split: str) -> Iterator[str]:
        """The same one by one, none of them kept; there may be no text."""
        return (text for (text,) in self._read(split, "source"))

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """The texts of `split`, each with its label. Never downloads.

        Raises:
          UserError: as for `pairs`; also a feature that is no label.
        """
        if not self.label:
            raise UserError(
                "config.data.label is not set: name the feature that holds the labels (and 'source'"
                " and 'target' the texts)"
            )
        read = list(self._read(split, *["source", "target"][: self.sentences], "label"))
        kept = [(texts, label) for *texts, label in read if label and all(texts)]
        if not kept:
            raise UserError(
                f"config.data.{split}={getattr(self, split)!r}: {_title(self)} has no labelled text"
                " there"
            )
        if len(kept) < len(read):
            _log.warning(
                "skipped %d examples of %s without a label or a text",
                len(read) - len(kept),
                _title(self),
            )
        return [(tuple(texts), label) for texts, label in kept]

    def _read(self, split: str, *fields: str) -> Iterator[tuple[str, ...]]:
        """The features that these fields name, of every record of `split`."""
        builder = open_builder(self.dataset, self.directory)
        names = [getattr(self, field) for field in fields]
        features = builder.info.features or {}
        for field, feature in zip(fields, names, strict=True):
            if feature not in features:
                raise UserError(
                    f"config.data.{field}={feature!r} is no feature of {_title(self)};"
                    f" {nearest(feature, features)}"
                )
        for record in _each(self._records(builder, split), builder.data_dir):
            yield tuple(_as_text(_named(record[name], features[name]), name) for name in names)

    def _records(self, builder: Any, split: str) -> Any:
        """Random access to the records of `split`."""
        expression = getattr(self, split)
        try:
            return builder.as_data_source(split=expression)
        except (
            NotImplementedError
        ) as error:  # what the library says of data that is not there, and of tfrecord
            if builder.is_prepared():
                advice = (
                    "prepare it anew, as array_record, in another --directory with python -m"
                    " attnlab.data.tfds"
                )
                raise UserError(
                    f"{_title(self)} in {builder.data_dir} is in a format without random access;"
                    f" {advice}"
                ) from error
            raise self._unprepared(builder) from error
        except (ValueError, KeyError, AssertionError) as error:
            if not builder.info.splits:
                raise self._unprepared(builder) from error
            hint = nearest(expression, builder.info.splits)
            raise UserError(
                f"config.data.{split}={expression!r} is no split of {_title(self)} ({error});"
                f" {hint}"
            ) from error
        except OSError as error:
            raise UserError(f"cannot read {_title(self)} in {builder.data_dir}: {error}") from error

    def _unprepared(self, builder: Any) -> UserError:
        """What to do about data that is not there."""
        where = f" --directory {self.directory}" if self.directory else ""
        command = (
            "pip install 'attnlab[prepare]' && python -m attnlab.data.tfds"
            f" {self.dataset or 'NAME'}{where}"
        )
        return UserError(
            f"{_title(self)} is not prepared in {builder.data_dir}; prepare it once: {command}"
        )


def open_builder(dataset: str, directory: str) -> Any:
    """The library's builder of `dataset`, or of the prepared version in the folder `directory`.
    Needs no network.

    Raises:
      UserError: no such dataset, config or version.
    """
    import tensorflow_datasets as tfds
    from google.protobuf.json_format import ParseError

    folder = expanded(directory)
    try:
        if directory and (folder / "dataset_info.json").is_file():
            return tfds.builder_from_directory(folder)
        _check_name(dataset, directory)
        return _named_builder(dataset, str(folder) if directory else None)
    except (
        ValueError,
        OSError,
        AssertionError,
        ParseError,
        tfds.core.dataset_info.DatasetInfoFileError,
    ) as error:
        raise UserError(
            f"config.data.dataset={dataset!r}, config.data.directory={directory!r}: {error}"
        ) from error


def _check_name(dataset: str, directory: str) -> None:
    """Refuse what the library would look up on the network, for half a minute: names with a
    namespace.
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


def _named_builder(dataset: str, folder: str | None) -> Any:
    """The builder of a registered dataset, importing the older ones if it takes that."""
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(dataset, data_dir=folder)
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
    return tfds.builder(dataset, data_dir=folder)


def _each(records: Any, folder: str) -> Iterator[Mapping[str, Any]]:
    """All records in their order."""
    for i in range(len(records)):
        try:
            yield records[i]
        except (
            RuntimeError,
            OSError,
        ) as error:  # the reader's word for a truncated or altered file
            raise UserError(
                f"the dataset prepared in {folder} is damaged: {error}; delete the folder and"
                " prepare it again"
            ) from error


def _named(value: Any, feature: Any) -> Any:
    """The name of a class where a feature numbers classes, "" for a number below 0 (what has no
    label); else the value.
    """
    if not hasattr(feature, "int2str"):
        return value
    return feature.int2str(int(value)) if int(value) >= 0 else ""


def _as_text(value: Any, feature: str) -> str:
    """A text feature as str; the data source gives bytes."""
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


def _title(source: Tfds) -> str:
    return f"dataset {source.dataset!r}" if source.dataset else f"the dataset in {source.directory}"


def prepare(dataset: str, directory: str) -> Path:
    """Download a named dataset and write it as array_record; the folder of the prepared version.

    Raises:
      UserError: TensorFlow is not installed, unknown name, no network, or no room.
    """
    if (
        importlib.util.find_spec("tensorflow") is None
    ):  # asked first: it is missed only after the download
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
    """The command of this module's docstring; 0, or 2 after one line about what to mend."""
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
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
