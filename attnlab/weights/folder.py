"""A folder as `transformers` writes it: `config.json`, and tensors in `model.safetensors` or in
several files with an index.

Only safetensors are read: a pickled file runs whatever code it holds. Tensors come as NumPy arrays
in the dtype of the file; the way back writes what is given, in files of at most so many bytes.

    in the folder                            what becomes of it
    F32, F16, BF16, F64                      weights, float32 here
    other types of numbers, NaN, infinity    refused by the name of the tensor
    quantization_config                      refused
    adapter_config.json                      refused: transformers would change the weights by it
    model.safetensors beside an index        refused, unless the index names that file alone
    a tensor in two files                    refused
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  so that NumPy knows bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from attnlab.data.json_files import read_json
from attnlab.errors import UserError, few
from attnlab.records.files import write_atomic

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
FLOATS = ("F32", "F16", "BF16", "F64")  # of a header, what weights can be
SHARD = 5 * 10**9  # bytes of a file at most, as transformers has it by default
_PICKLED = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "tf_model.h5",
    "flax_model.msgpack",
)
_CONVERT = (
    'python -c \'from transformers import AutoModel as M; M.from_pretrained("FOLDER")'
    '.save_pretrained("NEW")\''
)


def settings(folder: Path) -> dict[str, Any]:
    """Returns the content of `config.json` of a folder of `transformers`; raises `UserError` if
    folder or file is missing or it is no JSON object, or if the weights are quantized or have an
    adapter.

    Raises:
      UserError: no such folder, or no such file in it, or one that is no JSON object, or weights
        that are quantized or have an adapter.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; name one that has {CONFIG} and {WEIGHTS}")
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"{folder} has no {CONFIG}; expected a folder as save_pretrained of transformers"
            " writes it"
        )
    content: dict[str, Any] = read_json(folder / CONFIG)
    if content.get("quantization_config") is not None:
        raise UserError(
            f"{folder / CONFIG}: quantization_config says that the weights are quantized; load them"
            " with transformers, dequantize() and save them again"
        )
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"{folder} has an {ADAPTER}; merge the adapter into the weights (merge_and_unload() of"
            " peft) and save them again, or remove it to load the weights without it"
        )
    return content


def files(folder: Path) -> dict[str, Path]:
    """Returns the file of every tensor of a folder, by the tensor's name, read from headers only;
    raises `UserError` if the index and files disagree, or weights are missing or there twice.

    Raises:
      UserError: there are no safetensors, an index names a file or tensor that is not there, a
        tensor is in two files, or a file cannot be read.
    """
    if (folder / INDEX).is_file():
        listed = read_json(folder / INDEX).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise UserError(f"{folder / INDEX} has no 'weight_map'; put back a good copy")
        by_name: dict[str, Path] = {}
        for file in sorted(set(map(str, listed.values()))):
            if Path(file).name != file or not (folder / file).is_file():
                raise UserError(f"{folder / INDEX} names {file}, which is not in the folder")
            names = _names(folder / file)
            if twice := sorted(by_name.keys() & set(names)):
                raise UserError(
                    f"{folder / file} has {few(twice)}, which {by_name[twice[0]]} has too"
                )
            by_name |= dict.fromkeys(names, folder / file)
        if (folder / WEIGHTS).is_file() and {*by_name.values()} != {folder / WEIGHTS}:
            raise UserError(
                f"{folder} has its weights twice, in {WEIGHTS} and in the files of {INDEX}; remove"
                " the one or the other"
            )
        if lost := sorted(set(listed) - set(by_name)):
            raise UserError(f"{folder / INDEX} names {few(lost)}, which no file of the folder has")
        return by_name
    if (folder / WEIGHTS).is_file():
        return dict.fromkeys(_names(folder / WEIGHTS), folder / WEIGHTS)
    pickled = [name for name in _PICKLED if (folder / name).exists()]
    if pickled:
        raise UserError(
            f"{folder} has its weights in {pickled[0]} only, which is not read, for a pickle runs"
            f" whatever code it holds; where you trust it, convert it: {_CONVERT}"
        )
    raise UserError(f"{folder} has neither {WEIGHTS} nor {INDEX}")


def tensors(where: Mapping[str, Path]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (name, array) of each tensor of `where` (tensor name to its file), read from the files
    singly; raises `UserError` for numbers that are not finite or not of a type of `FLOATS`.

    Raises:
      UserError: a file cannot be read, or a tensor is not of finite numbers of type `FLOATS`.
    """
    check_floats(where)
    for file in dict.fromkeys(where.values()):
        with _opened(file) as source:
            for name in (name for name, holder in where.items() if holder == file):
                try:
                    tensor = source.get_tensor(name)
                except (SafetensorError, TypeError, AttributeError) as error:
                    raise UserError(f"{file}: cannot read {name} ({error})") from error
                check_finite(tensor, np.float32, f"{file}: {name}")
                yield name, tensor


def are_equal(where: Mapping[str, Path], name: str, other: str) -> bool:
    """Returns whether the tensors `name` and `other` of `where` (tensor name to its file) have the
    same shape and the same numbers.
    """
    first, second = (dict(tensors({key: where[key]}))[key] for key in (name, other))
    return np.array_equal(first, second)


def check_floats(where: Mapping[str, Path]) -> None:
    """Raises `UserError` unless the number type of each tensor of `where` (tensor name to its file)
    is a type of `FLOATS`; reads headers only.
    """
    for name, (_, kind) in headers(where).items():
        if kind not in FLOATS:
            raise UserError(
                f"{where[name]}: {name} has numbers of type {kind}; weights are {', '.join(FLOATS)}:"
                " load them with transformers as float32 and save them again"
            )


def check_finite(tensor: np.ndarray, dtype: Any, name: str) -> np.ndarray:
    """Returns a tensor as `dtype`; raises `UserError` if a number is not finite, or would not be so
    in that type.
    """
    with np.errstate(over="ignore"):
        converted: np.ndarray = tensor.astype(dtype, copy=False)
    if not np.isfinite(converted).all():
        why = "NaN or infinity among its numbers"
        if np.isfinite(tensor).all():
            why = f"numbers that {np.dtype(dtype).name} cannot hold"
        raise UserError(f"{name} has {why}")
    return converted


def headers(where: Mapping[str, Path]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns (shape, number type such as "F32") of each tensor of `where` (tensor name to its
    file), by name, read from the headers of the files.
    """
    by_name = {}
    for file in dict.fromkeys(where.values()):
        with _opened(file) as source:
            for name in (name for name, holder in where.items() if holder == file):
                header = source.get_slice(name)
                by_name[name] = tuple(header.get_shape()), str(header.get_dtype())
    return by_name


def write(
    folder: Path, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shard: int = SHARD
) -> list[Path]:
    """Writes config and tensors into a folder, which is created, in files of at most `shard` bytes
    of tensors (a larger one has its own file) with an index if several; returns the list of files,
    the config last, so that a folder with a config is whole; raises `UserError` if it cannot.

    Raises:
      UserError: the folder cannot be written.
    """
    parts: list[dict[str, np.ndarray]] = [{}]
    for name, array in arrays.items():
        if parts[-1] and sum(tensor.nbytes for tensor in parts[-1].values()) + array.nbytes > shard:
            parts.append({})
        parts[-1][name] = np.ascontiguousarray(array)
    count = len(parts)
    names = [
        WEIGHTS if count == 1 else f"model-{number:05}-of-{count:05}.safetensors"
        for number in range(1, count + 1)
    ]
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in zip(names, parts, strict=True):
            file = folder / name
            file.touch()
            mode = file.stat().st_mode
            save_file(part, file, metadata={"format": "pt"})
            file.chmod(mode)  # safetensors makes it for its owner alone
            written.append(file)
        if count > 1:
            total = sum(tensor.nbytes for tensor in arrays.values())
            index = {
                "metadata": {"total_size": total},
                "weight_map": {
                    tensor: name for name, part in zip(names, parts, strict=True) for tensor in part
                },
            }
            write_atomic(folder / INDEX, json.dumps(index, indent=2) + "\n")
            written.append(folder / INDEX)
        write_atomic(folder / CONFIG, json.dumps(dict(config), indent=2) + "\n")
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {folder}: {error}") from error
    return [*written, folder / CONFIG]


def _names(file: Path) -> list[str]:
    """The names of the tensors of a file."""
    with _opened(file) as source:
        return list(source.keys())


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Opens a safetensors file as a context; raises `UserError` if it is damaged or of another
    format.
    """
    try:
        source = safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{file} is damaged or no safetensors file ({error}); put back a good copy"
        ) from error
    with source:
        yield source
