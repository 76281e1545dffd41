"""Holds a golden model of others: how it is loaded, and what is compared with the other side's
numbers, in one way for every kind of model.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import weights
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.weights import folder as folders
from attnlab.weights.names import Name, flat
from attnlab.weights.writing import canonical, config_of, with_defaults
from tests.weights import models, rule

DEFAULT = {
    *("gpt2", "llama", "gemma2", "gemma3"),
    *("encoders/bert_pretraining", "pairs/bart_scaled", "images/vit_odd"),
}
"""What is computed in a default run: one small family of each kind, and those language models that
have something of their own (tanh GELU and joined matrices; caps; layers that differ).
"""
BACK = {*DEFAULT, "llama_scaled", "encoders/bert_texts", "pairs/t5", "images/resnet18"}
"""What is written and read again in a default run."""


def over(names: Sequence[str], default: Container[str] = DEFAULT) -> pytest.MarkDecorator:
    """A test of golden models, of which those of `default` are in a default run."""
    marks = {name: [] if name in default else [pytest.mark.full] for name in names}
    return pytest.mark.parametrize("name", [pytest.param(one, marks=marks[one]) for one in names])


NAMES = {
    kind: sorted(f"{kind}{file.stem}" for file in (models.GOLDEN / kind).glob("*.json"))
    for kind in ("", "encoders/", "pairs/", "images/")
}
"""The golden models of each kind."""
ALL = [name for names in NAMES.values() for name in names]
_CLASSES = {"bert_classifier": "classes", "bert": "outputs"}


def kind_of(name: str) -> str:
    """The kind of a golden model: "" of language models, else the folder of its numbers."""
    return name[: name.find("/") + 1]


def system_of(name: str, folder: Path) -> Any:
    """The system of a golden model, whose sizes are those of its config."""
    node, content = weights.system(folder), folders.settings(folder)
    size, sizes = content.get("vocab_size"), dict[str, Any]()
    match kind_of(name):
        case "images/":
            sizes = {"classes": len(weights.pictures(folder).classes)}  # type: ignore[union-attr]
        case "pairs/":
            sizes = dict.fromkeys(("source_vocabulary", "target_vocabulary"), size)
            sizes["pad_id"] = content["pad_token_id"]
        case "encoders/":
            outputs = size if node.get("head") == "tied" else len(content["id2label"])
            sizes = {"vocabulary": size, _CLASSES[node["name"]]: outputs, "pad_id": -1, "bos_id": 3}
        case _:
            sizes = {"vocabulary": size, "pad_id": -1}
    return build(SYSTEMS, node, "system")(**sizes)


def system_and_shapes(name: str, folder: Path) -> tuple[Any, Any]:
    """The system of a golden model in a folder, and the shapes of its parameters."""
    system = system_of(name, folder)
    read = [jnp.zeros((1, 2), jnp.int32)] * (2 if kind_of(name) in ("encoders/", "pairs/") else 1)
    if kind_of(name) == "images/":
        read = [jnp.zeros((1, *models.numbers(name)["images"].shape[1:]))]
    return system, jax.eval_shape(system.init, jax.random.key(0), *read)["params"]


def shapes_of(node: Mapping[str, Any], vocabulary: int) -> Any:
    """The shapes of the parameters of a language model's node, without an id for padding."""
    system = build(SYSTEMS, node, "system")(vocabulary=vocabulary, pad_id=-1)
    return jax.eval_shape(system.init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"]


def loaded(name: str, path: Path) -> tuple[Any, Any, list[Name]]:
    """System, parameters and lines of names of a golden model, whose folder is made at `path`."""
    folder = models.folder(name, path)
    system, params = system_and_shapes(name, folder)
    names = weights.names_of(weights.kind_of(folders.settings(folder), name))
    lines = names.lines({key: leaf.shape for key, leaf in flat(params).items()})
    return system, weights.parameters(folder, params), list(lines)


def assert_numbers(name: str, **actual: Any) -> None:
    """Raises unless the loss is within 1e-5 and all else, by its name, within 5e-5 of the golden
    numbers.
    """
    golden = models.numbers(name)
    for key, array in actual.items():
        off = np.abs(np.asarray(array) - golden[key]).max()
        assert off <= (1e-5 if key == "loss" else 5e-5), (key, off)


def assert_gradients(
    name: str, gradients: Any, lines: Iterable[Name], untrained: str = "-", unmoved: str = "-"
) -> None:
    """Raises unless of every tensor the gradient's norm, and its product with a vector drawn for
    it, are within 1e-4 of the norm.

    Args:
      gradients: ours.
      untrained: a word in the names of tensors of which the other side has no gradient.
      unmoved: the end of the names of biases that shift all scores of a row alike, so that their
        gradient is 0 but for rounding.
    """
    golden, ours = models.numbers(name), flat(gradients)
    theirs = {line.tensor: line.join([np.asarray(ours[at]) for at in line.paths]) for line in lines}
    names = list(models.described(name)["shapes"])
    assert sorted(theirs) == sorted(names)
    trained = [key for key in names if untrained not in key]
    for key, norm, along in zip(trained, golden["grad_norm"], golden["grad_along"], strict=True):
        gradient = theirs[key].astype(np.float64)
        size = np.sqrt((gradient**2).sum())
        if key.endswith(unmoved):
            assert max(norm, size) < 1e-6, key
            continue
        product = (gradient * rule.uniform(f"along {key}", gradient.shape)).sum()
        assert max(abs(size - norm), abs(product - along)) <= 1e-4 * norm, key


def assert_out_and_back(name: str, params: Any, folder: Path, out: Path) -> None:
    """Raises unless what is written in `out` has the tensors of `folder` to the last bit, by name,
    and a config that tells of the same system and kind of model.
    """
    node, expected = weights.system(folder), models.described(name)["config"]
    config = config_of(with_defaults(node))
    kind = weights.kind_of(config, name)
    assert config_of(with_defaults(node), kind) == config
    for key in ("architectures", "model_type", "architecture"):
        assert config.get(key) == expected.get(key)
    folders.write(out, config, weights.names_of(kind).write(flat(params), np.float32))
    tensors, written = models.tensors(name), dict(folders.tensors(folders.files(out)))
    assert written.keys() == tensors.keys()
    for key, array in written.items():
        assert array.dtype == np.float32 and np.array_equal(array, tensors[key]), key
    assert canonical(weights.system(out)) == canonical(node)
