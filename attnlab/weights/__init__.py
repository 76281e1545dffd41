"""Weights of models from elsewhere, in and out: folders as `transformers` of Hugging Face writes them.

    folder.py       config.json and safetensors, read and written
    foreign.py      what a config says, read with care
    generation.py   what a generation config says, as settings of decoding
    pictures.py     what a config of a processor says of images
    names.py        tables of names: which tensor is which parameter
    gpt2.py, ...    one file for a family of models: its table, its config as a system of ours, and back

A new family is one file with `ARCHITECTURES`, `NAMES`, `system` and `config`, and one line in `MODELS`. If its systems are not
`decoder`, it names them in `SYSTEMS`, and `run` says what a config has beside the system, weights and tokenizer. One of images
has neither `run` nor tokenizer: `pictures` says what it reads, and `preprocessing_files` writes that down again.
"""

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.errors import UserError, nearest
from attnlab.weights import folder as folders
from attnlab.weights import generation
from attnlab.weights.foreign import ForeignConfig, brief
from attnlab.weights.names import Names, flat, nested
from attnlab.weights.pictures import Pictures

MODELS: Mapping[str, str] = {
    "gpt2": "gpt2",
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), "llama"
    ),
    "starcoder2": "starcoder2",
    "bert": "bert",
    "t5": "t5",
    "bart": "bart",
    "vit": "vit",
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), "resnet"),
}
"""The types of models that are known, and the file of each."""
NEW_HEAD = "^(out|pooler)/"
"""A regular expression of the parameters of a new head, for `lora.also`."""


def family(kind: str) -> Any:
    """The module of a model type."""
    return importlib.import_module(f"attnlab.weights.{MODELS[kind]}")


def systems_of(kind: str) -> tuple[str, ...]:
    """The systems that a model type may be."""
    return getattr(family(kind), "SYSTEMS", ("decoder",))


def names_of(kind: str) -> Names:
    """Returns the table of names (tensor to parameter) of a model type."""
    module = family(kind)
    return module.NAMES if hasattr(module, "NAMES") else module.names(kind)


def parameters(folder: Path, params: Any, dtype: Any = np.float32) -> dict[str, Any]:
    """Reads the weights in a folder of `transformers` and returns them as a tree like `params`
    (arrays or shapes) of NumPy arrays of `dtype`; raises `UserError` if the folder cannot be read
    or its tensors do not fit.

    Args:
      folder: as `transformers` writes it.
      params: the tree of the system's parameters, arrays or their shapes.

    Raises:
      UserError: a folder that cannot be read, a model of a kind that is not known here, tensors
        that are missing, too many or of another shape than the system has them.
    """
    names, shapes = _names_and_shapes(folder, params)
    return nested(names.read(folders.files(folder), shapes, dtype))


def check(folder: Path, params: Any) -> None:
    """Raises `UserError` where `parameters` would; each tensor is read and checked, none is kept."""
    names, shapes = _names_and_shapes(folder, params)
    where = folders.files(folder)
    for _ in folders.tensors({name: where[name] for name in names.check(where, shapes)}):
        pass


def labels(folder: Path) -> tuple[str, ...]:
    """Returns the names of a classifier's classes in a folder of `transformers`, in the order of
    its outputs; () if the folder has no config, or the config does not name them.
    """
    if not (folder / folders.CONFIG).is_file():
        return ()
    names = ForeignConfig(folders.settings(folder), str(folder / folders.CONFIG)).labels()
    unnamed = tuple(f"LABEL_{number}" for number in range(len(names)))
    return () if names == unnamed else names


def fingerprint(folder: Path) -> str:
    """Returns a single SHA-256, in hex, over the SHA-256 hashes of a folder's weight files, in the
    order of their names.
    """
    digest = hashlib.sha256()
    for file in sorted(set(folders.files(folder).values())):
        with file.open("rb") as source:
            digest.update(hashlib.file_digest(source, "sha256").digest())
    return digest.hexdigest()


def _names_and_shapes(folder: Path, params: Any) -> tuple[Names, dict[str, tuple[int, ...]]]:
    """Returns the table of names of the model in a folder, and the shapes of `params` by path."""
    content = folders.settings(folder)
    kind = kind_of(content, str(folder / folders.CONFIG))
    return names_of(kind), {path: tuple(leaf.shape) for path, leaf in flat(params).items()}


def _module_and_file(folder: Path) -> tuple[Any, ForeignConfig]:
    """Returns the module of the model type of a folder, and its config."""
    file = ForeignConfig(folders.settings(folder), str(folder / folders.CONFIG), folder)
    return family(kind_of(file.content, file.where)), file


def kind_of(content: Mapping[str, Any], where: str) -> str:
    """Returns the model type that a parsed config `content` names ("model_type", for a model of
    timm "architecture"); raises `UserError`, beginning with `where`, if it names none or one that
    attnlab does not have.

    Raises:
      UserError: none, or one that is not known here.
    """
    key = "model_type" if "model_type" in content else "architecture"
    kind = content.get(key)
    if not isinstance(kind, str) or kind not in MODELS:
        problem = f"{key}={brief(kind)}" if kind else "it has no model_type"
        raise UserError(f"{where}: {problem}; known are: {', '.join(MODELS)}")
    return kind


def system(folder: Path) -> dict[str, Any]:
    """Returns the config node `system` of the model in a folder.

    Raises:
      UserError: no such folder, a model of a kind that is not known here, or one with a setting
        that is not computed here.
    """
    module, file = _module_and_file(folder)
    return module.system(file)


def pictures(folder: Path) -> Pictures | None:
    """Returns the `Pictures` of the model in a folder, its preparation of images and its classes,
    or None if it reads no images.

    Raises:
      UserError: see `system`.
    """
    module, file = _module_and_file(folder)
    return module.pictures(file) if hasattr(module, "pictures") else None


def run_config(folder: Path, task: str = "") -> dict[str, Any]:
    """Returns a run config for tuning the model in a folder, apart from defaults: the nodes
    "system", "pretrained", "vocabulary" (not for images), "optimizer", "schedule" and "training",
    and those of its kind of model, such as "task", "data" and "batch".

    Args:
      folder: as `transformers` writes it.
      task: "" for the task of the folder's own head; another one gives the system the head of that
        task, whose parameters are drawn and, with `lora.rank`, trained whole.

    Raises:
      UserError: see `system`; a task that models of this kind have no head for.
    """
    module, file = _module_and_file(folder)
    if task:
        heads = {of: head for head, of in getattr(module, "TASKS", {}).items()}
        if task not in heads:
            hint = nearest(task, heads) if heads else "leave it out"
            raise UserError(f"{file.where}: no head for task {task!r} is known here; {hint}")
        content = {**file.content, "architectures": [heads[task]]}
        file = ForeignConfig(content, file.where, file.folder)
    of_images = hasattr(module, "pictures")
    settings: dict[str, Any] = (
        module.pictures(file).run() if of_images else getattr(module, "run", _continuing)(file)
    )
    if "decoding" in settings:
        settings["decoding"] |= generation.decoding(file)
    return {
        "system": module.system(file),
        "pretrained": {"folder": str(folder), **({"take": "matching"} if task else {})},
        **({} if of_images else {"vocabulary": {"kind": "tokenizer", "file": str(folder)}}),
        **({"lora": {"also": (NEW_HEAD,)}} if task else {}),
        "optimizer": "adamw",
        "schedule": {"name": "cosine", "peak": 5e-5, "warmup": 100},
        "training": {"steps": 1000, "evaluate_every": 100},
        **settings,
    }


def _continuing(file: ForeignConfig) -> dict[str, Any]:
    """Returns the nodes "task", "data", "batch" and "decoding" of a run config for a language
    model, with rows of at most 128 tokens, fewer if the `n_positions` of its config end before.
    """
    longest = file.count("n_positions", 1024)
    return {
        "task": "language_modelling",
        "data": "none",
        "batch": {"size": 16, "texts": "joined", "max_length": min(128, longest)},
        "decoding": {"method": "sample", "max_ratio": 0.0, "max_extra": 50, "batch": 16},
    }
