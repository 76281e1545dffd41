"""Folders of golden models, made anew from `golden/` and `rule.py`, and what they compute."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.weights import rule

GOLDEN = Path(__file__).parent / "golden"


def described(name: str) -> dict[str, Any]:
    """ "config" and "shapes" of a golden model."""
    actual: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return actual


def numbers(name: str) -> dict[str, np.ndarray]:
    """What `transformers` has computed, see `golden.py`."""
    with np.load(GOLDEN / f"{name}.npz") as actual:
        return dict(actual)


def tensors(name: str, **changes: Any) -> dict[str, np.ndarray]:
    """The tensors of its file, with `changes` of its config, of which the vocabulary's size counts."""
    golden = described(name)
    size = golden["config"].get("vocab_size")
    sizes = {size: changes.get("vocab_size", size)}
    shapes = {key: [sizes.get(n, n) for n in shape] for key, shape in golden["shapes"].items()}
    return {key: rule.parameter(key, shape) for key, shape in shapes.items()}


def folder(name: str, path: Path, **changes: Any) -> Path:
    """The folder as `save_pretrained` writes it; `changes` of its config."""
    path.mkdir(parents=True, exist_ok=True)
    config = {**described(name)["config"], **changes}
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors(name, **changes), path / "model.safetensors", metadata={"format": "pt"})
    return path
