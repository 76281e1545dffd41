"""A folder as `transformers` writes it: `config.json`, and tensors in `model.safetensors` or in
several files with an index.

Only safetensors are read: a pickled file runs whatever code it holds. Tensors come as NumPy arrays
in the dtype of the file; the way back writes what is given, in files of at most so many bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  so that NumPy knows bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from attnlab.errors import UserError
from attnlab.records.files import write_atomic

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
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
    """What `config.json` says.

    Raises:
      UserError: no such folder, or no such file in it, or one that is no JSON object.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; name one that has {CONFIG} and {WEIGHTS}")
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"{folder} has no {CONFIG}; expected a folder as save_pretrained of transformers"
            " writes it"
        )
    return told(folder / CONFIG)


def files(folder: Path) -> dict[str, Path]:
    """The name of every tensor of a folder, and the file that holds it; reads headers only.

    Raises:
      UserError: there are no safetensors, an index names a file or tensor that is not there, or a
        file cannot be read.
    """
    if (folder / INDEX).is_file():
        listed = told(folder / INDEX).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise UserError(f"{folder / INDEX} has no 'weight_map'; put back a good copy")
        found: dict[str, Path] = {}
        for file in sorted(set(map(str, listed.values()))):
            if Path(file).name != file or not (folder / file).is_file():
                raise UserError(f"{folder / INDEX} names {file}, which is not in the folder")
            found |= dict.fromkeys(_names(folder / file), folder / file)
        if lost := sorted(set(listed) - set(found)):
            raise UserError(f"{folder / INDEX} names {few(lost)}, which no file of the folder has")
        return found
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
    """The tensors of these names, each from its file, one at a time.

    Raises:
      UserError: a file cannot be read, or holds numbers of a type that NumPy lacks.
    """
    for file in dict.fromkeys(where.values()):
        with _opened(file) as source:
            for name in (name for name, one in where.items() if one == file):
                try:
                    yield name, source.get_tensor(name)
                except (SafetensorError, TypeError, AttributeError) as error:
                    raise UserError(f"{file}: cannot read {name} ({error})") from error


def shapes(where: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor; reads headers only."""
    found = {}
    for file in dict.fromkeys(where.values()):
        with _opened(file) as source:
            for name in (name for name, one in where.items() if one == file):
                found[name] = tuple(source.get_slice(name).get_shape())
    return found


def write(
    folder: Path, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shard: int = SHARD
) -> list[Path]:
    """Write config and tensors into a folder, which is made; the files written, the config last, so
    that a folder with a config is whole.

    Raises:
      UserError: the folder cannot be written.
    """
    parts: list[dict[str, np.ndarray]] = [{}]
    for name, array in arrays.items():
        if parts[-1] and sum(one.nbytes for one in parts[-1].values()) + array.nbytes > shard:
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
            save_file(part, folder / name, metadata={"format": "pt"})
            written.append(folder / name)
        if count > 1:
            total = sum(one.nbytes for one in arrays.values())
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


def few(names: list[str], most: int = 3) -> str:
    """The first few names and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def told(path: Path) -> dict[str, Any]:
    """The object in a file of JSON; `UserError` where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); put back a good copy") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no JSON object; put back a good copy")
    return content


def _names(file: Path) -> list[str]:
    with _opened(file) as source:
        return list(source.keys())


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """A file of tensors; `UserError` where it is cut short or none."""
    try:
        source = safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{file} is damaged or no safetensors file ({error}); put back a good copy"
        ) from error
    with source:
        yield source
