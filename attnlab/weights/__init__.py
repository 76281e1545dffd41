"""Weights of models from elsewhere, in and out: folders as `transformers` of Hugging Face writes them.

    folder.py       config.json and safetensors, read and written
    told.py         what a config says, read with care
    names.py        tables of names: which tensor is which parameter
    gpt2.py, ...    one file for a family of models: its table, its config as a system of ours, and back

A new family is one file with `ARCHITECTURES`, `names`, `system` and `config`, and one line in `MODELS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.names import Names
from attnlab.weights.told import Told

MODELS: Mapping[str, str] = {
    "gpt2": "gpt2",
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), "llama"
    ),
}
"""The types of models that are known, and the file of each."""


def family(kind: str) -> Any:
    """The module of a model type."""
    return importlib.import_module(f"attnlab.weights.{MODELS[kind]}")


def names_of(kind: str) -> Names:
    """The table of a model type."""
    found: Names = family(kind).names(kind)
    return found


def kind_of(content: Mapping[str, Any], where: str) -> str:
    """The model type that a config tells.

    Raises:
      UserError: none, or one that is not known here.
    """
    kind = content.get("model_type")
    if kind not in MODELS:
        told = f"model_type={kind!r}" if kind else "it has no model_type"
        raise UserError(f"{where}: {told}; known are: {', '.join(MODELS)}")
    return str(kind)


def system(folder: Path) -> dict[str, Any]:
    """The config node `system` of the model in a folder.

    Raises:
      UserError: no such folder, a model of a kind that is not known here, or one with a setting
        that is not computed here.
    """
    content, where = folders.settings(folder), str(folder / folders.CONFIG)
    kind_of(content, where)
    found: dict[str, Any] = family(content["model_type"]).system(Told(content, where))
    return found
