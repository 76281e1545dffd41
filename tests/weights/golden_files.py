"""What the scripts that write golden numbers (`golden.py` and those named after it) do alike: they
draw a model of `transformers` by its golden config, write its two files, and check written folders.

NAME.json has the config as `transformers` saves it, from which the model is built, and name and
shape of every tensor of its file. A new golden model begins as a NAME.json with "config" alone, of
which "architectures" names the class.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.weights import rule
from tests.weights.models import GOLDEN, described


def built(golden: dict[str, Any]) -> Any:
    """The model of a NAME.json, its own attention."""
    config = dict(golden["config"])
    kind = getattr(transformers, config.pop("architectures")[0])
    settings = kind.config_class.from_dict(config)
    return kind._from_config(settings, attn_implementation="eager")


def loaded(folder: Path) -> Any:
    """The model of a folder, by the class that its own config tells of; nothing may be left over."""
    written = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, written.architectures[0])
    model, report = kind.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
    )
    left = {key: sorted(names) for key, names in report.items() if names}
    assert not left, (folder.name, left)
    return model


def parameters(model: Any) -> dict[str, Any]:
    """The tensors of its file, by name."""
    return dict(model.named_parameters())


def slopes(tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    """`grad_norm` and `grad_along` of the tensors that have a gradient."""
    norms, along = [], []
    for key, tensor in tensors.items():
        if tensor.grad is not None:
            g = tensor.grad.double().numpy()
            norms.append(np.sqrt((g**2).sum()))
            along.append((g * rule.uniform(f"along {key}", g.shape)).sum())
    return {"grad_norm": np.array(norms), "grad_along": np.array(along)}


def store(name: str, config: dict[str, Any], shapes: Any, numbers: dict[str, np.ndarray]) -> None:
    """NAME.json and NAME.npz, and a line on the numbers."""
    texts = {"config": json.dumps(config), "shapes": json.dumps(shapes).replace("], ", "],\n  ")}
    (GOLDEN / f"{name}.json").write_text(
        "{" + ",\n ".join(f'"{key}": {text}' for key, text in texts.items()) + "}\n"
    )
    np.savez_compressed(GOLDEN / f"{name}.npz", **numbers)
    outputs = numbers.get("logits", numbers.get("outputs"))
    greedy = f", {len(set(numbers['greedy'].tolist()))} tokens" if "greedy" in numbers else ""
    print(f"{name:26} loss {numbers['loss']:.4f}, deviation {outputs.std():.3f}{greedy}")


def main(
    kind: str,
    computed: Callable[[Any, dict[str, Any]], dict[str, np.ndarray]],
    tensors: Callable[[Any], dict[str, Any]] = parameters,
    built: Callable[[dict[str, Any]], Any] = built,
    loaded: Callable[[Path], Any] = loaded,
) -> None:
    """The commands `write [NAME ...]` and `check FOLDER` of the golden models of a kind.

    Args:
      kind: the folder of `golden/` that has their files.
      computed: outputs and loss of a model, which has gradients after that.
      tensors: the tensors of a model's file, by name.
      built: the model of a NAME.json.
      loaded: the model of a folder, float32.
    """
    torch.set_num_threads(1)

    def drawn(name: str) -> Any:
        """The golden model, float32, no dropout; every tensor by the rule."""
        model = built(described(name)).float().eval()
        with torch.no_grad():
            for key, tensor in tensors(model).items():
                tensor.copy_(torch.from_numpy(rule.parameter(key, tensor.shape)))
        return model

    def write(name: str) -> None:
        model, config = drawn(name), described(name)["config"]
        shapes = {key: list(tensor.shape) for key, tensor in tensors(model).items()}
        numbers = {**computed(model, config), **slopes(tensors(model))}
        if hasattr(model, "config"):
            config = {**model.config.to_diff_dict(), "architectures": config["architectures"]}
        store(name, config, shapes, numbers)

    def same(folder: Path) -> bool:
        """Is a folder loaded whole, and are outputs equal to the last bit?"""
        name = str(Path(kind, folder.name))
        golden = described(name)
        numbers = computed(loaded(folder).eval(), golden["config"])
        before = computed(drawn(name), golden["config"])
        compared = [key for key in ("logits", "outputs", "greedy") if key in before]
        equal = {key: bool(np.array_equal(numbers[key], before[key])) for key in compared}
        print(f"{name:26} equal {equal}")
        return all(equal.values())

    command, *rest = sys.argv[1:]
    if command == "check":
        good = [same(folder) for folder in sorted(Path(rest[0]).iterdir())]
        sys.exit(0 if good and all(good) else 1)
    for name in rest or sorted(file.stem for file in (GOLDEN / kind).glob("*.json")):
        write(str(Path(kind, name)))
