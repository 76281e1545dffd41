"""Shared by the scripts that write golden numbers (`golden.py` and those named after it): gradients
in short, the two files of a model, and the command line. It needs NumPy, and torch where it is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.weights import rule


def drawn(tensors: Iterable[tuple[str, Any]]) -> None:
    """Gives every tensor, by its name, the numbers of `rule.parameter`."""
    import torch

    with torch.no_grad():
        for key, tensor in tensors:
            tensor.copy_(torch.from_numpy(rule.parameter(key, tensor.shape)))


def slopes(tensors: Iterable[tuple[str, Any]]) -> dict[str, np.ndarray]:
    """`grad_norm` and `grad_along` of the tensors that have a gradient, by name."""
    norms, along = [], []
    for key, tensor in tensors:
        if tensor.grad is not None:
            g = tensor.grad.double().numpy()
            norms.append(np.sqrt((g**2).sum()))
            along.append((g * rule.uniform(f"along {key}", g.shape)).sum())
    return {"grad_norm": np.array(norms), "grad_along": np.array(along)}


def config_of(model: Any) -> dict[str, Any]:
    """The config of a model of transformers, as it saves it."""
    return {**model.config.to_diff_dict(), "architectures": [type(model).__name__]}


def store(
    folder: Path, name: str, config: dict[str, Any], shapes: Any, numbers: dict[str, np.ndarray]
) -> None:
    """NAME.json and NAME.npz in a folder, and a line on the numbers."""
    folder.mkdir(exist_ok=True)
    told = {"config": json.dumps(config), "shapes": json.dumps(shapes).replace("], ", "],\n  ")}
    (folder / f"{name}.json").write_text(
        "{" + ",\n ".join(f'"{key}": {text}' for key, text in told.items()) + "}\n"
    )
    np.savez_compressed(folder / f"{name}.npz", **numbers)
    outputs = numbers.get("logits", numbers.get("outputs"))
    greedy = f", {len(set(numbers['greedy'].tolist()))} tokens" if "greedy" in numbers else ""
    print(f"{name:18} loss {numbers['loss']:.4f}, deviation {outputs.std():.3f}{greedy}")


def loaded(kind: Any, folder: Path) -> tuple[Any, dict[str, list[str]]]:
    """The model of a folder, by a class of transformers, and what was left over."""
    import torch

    model, told = kind.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    return model.eval(), {key: sorted(value) for key, value in told.items() if value}


def same(
    name: str, left: dict[str, list[str]], found: dict[str, np.ndarray], golden: dict[str, Any]
) -> bool:
    """Whether nothing was left over and outputs are equal to the last bit; it says so."""
    compared = [key for key in ("logits", "outputs", "greedy") if key in golden]
    equal = {key: bool(np.array_equal(found[key], golden[key])) for key in compared}
    print(f"{name:18} left over {left or 'nothing'}; equal {equal}")
    return not left and all(equal.values())


def main(names: Iterable[str], write: Callable[[str], None], check: Callable[[Path], bool]) -> None:
    """The commands `write [NAME ...]` and `check FOLDER`."""
    command, *rest = sys.argv[1:]
    if command == "check":
        good = [check(folder) for folder in sorted(Path(rest[0]).iterdir())]
        sys.exit(0 if good and all(good) else 1)
    for name in rest or names:
        write(name)
