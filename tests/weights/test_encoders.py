"""What our encoders compute with the weights of BERT, against numbers of `transformers`, and the way
back; `golden_encoders.py` says how these came about. Nothing here needs torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import save_file

from attnlab import weights
from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.weights.names import flat
from tests.attention.cases import wide
from tests.sampling import full_mode
from tests.weights import comparing, models

NAMES = sorted(f"encoders/{file.stem}" for file in (models.GOLDEN / "encoders").glob("*.json"))
CLASSES = {"bert_classifier": "classes", "bert": "outputs"}


def system_of(node: dict[str, Any], content: dict[str, Any]) -> Any:
    """The system, with as many outputs as the config has labels, or ids."""
    size, tied = content["vocab_size"], node.get("head") == "tied"
    outputs = size if tied else len(content["id2label"])
    given = {"vocabulary": size, CLASSES[node["name"]]: outputs, "pad_id": -1, "bos_id": 3}
    return build(SYSTEMS, node, "system")(**given)


def loaded(name: str, path: Path) -> tuple[Any, Any, Any]:
    """System, parameters and lines of names of a golden model."""
    return comparing.loaded(name, path, system_of, *[jnp.zeros((1, 2), jnp.int32)] * 2)


@comparing.over(NAMES)
def test_outputs_loss_and_gradients(name: str, tmp_path: Path) -> None:
    """In float64, since the gradient of the bias of `cls.seq_relationship` is a difference of two
    terms 70 times its size, and rounds like them; in the full mode values are computed in float32
    too.
    """
    system, params, lines = loaded(name, tmp_path)
    golden = models.numbers(name)
    ids, types = golden["ids"], golden["types"]
    cost = optax.softmax_cross_entropy_with_integer_labels

    def loss(params: Any) -> tuple[jax.Array, dict[str, Any]]:
        variables = {"params": params}
        read = (ids[:, 1:5], ids[:, 5:]) if "texts" in name else (ids, types)
        outputs = system.apply(variables, *read)
        total = cost(outputs, golden["labels"].reshape(outputs.shape[:-1])).mean()
        if "related" not in golden:
            return total, {"outputs": outputs}
        related = system.apply(variables, ids, types, method="follows")
        total += cost(related, jnp.array([0, 1])).mean()
        return total, {"outputs": outputs, "related": related}

    if full_mode():
        value, found = jax.jit(loss)(params)
        comparing.assert_numbers(name, loss=value, **found)
    with jax.enable_x64(True):
        (value, found), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(wide(params))
    comparing.assert_numbers(name, loss=value, **found)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradients)} == {np.dtype(np.float64)}
    comparing.assert_gradients(name, gradients, lines, unmoved="key.bias")


@comparing.over(NAMES, comparing.BACK)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    _, params, _ = loaded(name, tmp_path / "in")
    comparing.assert_out_and_back(name, params, tmp_path / "in", tmp_path / "out")


def test_published_files_have_older_names_and_more_tensors(tmp_path: Path) -> None:
    """gamma and beta; pooler and the head for pairs, which a masked language model has not; copies
    of tied tensors; a table of positions.
    """
    _, wanted, _ = loaded("encoders/bert_masked", tmp_path / "new")
    tensors = models.tensors("encoders/bert_masked")
    old = {
        key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): one
        for key, one in tensors.items()
    }
    old |= {
        "bert.embeddings.position_ids": np.arange(31)[None],
        "bert.pooler.dense.weight": np.zeros((36, 36), np.float32),
        "bert.pooler.dense.bias": np.zeros(36, np.float32),
        "cls.seq_relationship.weight": np.zeros((2, 36), np.float32),
        "cls.seq_relationship.bias": np.zeros(2, np.float32),
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    folder = models.folder("encoders/bert_masked", tmp_path / "old")
    save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    found = weights.parameters(folder, wanted)
    for path, one in flat(found).items():
        np.testing.assert_array_equal(one, flat(wanted)[path])


def test_missing_tensors_of_a_head_are_named(tmp_path: Path) -> None:
    folder = models.folder("encoders/bert_tokens", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (folder / "config.json").write_text(json.dumps(config))
    system = system_of(weights.system(folder), config)
    params = jax.eval_shape(system.init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"]
    with pytest.raises(UserError, match=r"5 missing: cls\.predictions\.bias.*classifier\.bias"):
        weights.parameters(folder, params)
