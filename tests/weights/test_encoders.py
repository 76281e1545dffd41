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
from attnlab.weights import folder as folders
from attnlab.weights.names import flat
from attnlab.weights.writing import canonical, completed, config_of
from tests.attention.cases import wide
from tests.weights import models, rule

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
    folder = models.folder(name, path)
    content = folders.settings(folder)
    system = system_of(weights.system(folder), content)
    params = jax.eval_shape(system.init, jax.random.key(0), *[jnp.zeros((1, 2), jnp.int32)] * 2)[
        "params"
    ]
    names = weights.names_of("bert")
    shapes = {key: one.shape for key, one in flat(params).items()}
    return system, weights.parameters(folder, params), list(names.lines(shapes))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_loss_and_gradients(name: str, tmp_path: Path) -> None:
    """Outputs within 5e-5; of every tensor the gradient's norm, and its product with a vector drawn
    for it, within 1e-4 of the norm. Gradients are ours in float64: that of the bias of
    `cls.seq_relationship` is a difference of two terms 70 times its size, and rounds like them.
    """
    system, params, lines = loaded(name, tmp_path)
    golden = models.numbers(name)
    ids, types = golden["ids"], golden["types"]
    cost = optax.softmax_cross_entropy_with_integer_labels

    def loss(params: Any) -> tuple[jax.Array, Any]:
        variables = {"params": params}
        read = (ids[:, 1:5], ids[:, 5:]) if "texts" in name else (ids, types)
        outputs = system.apply(variables, *read)
        total = cost(outputs, golden["labels"].reshape(outputs.shape[:-1])).mean()
        if "related" not in golden:
            return total, (outputs,)
        related = system.apply(variables, ids, types, method="follows")
        return total + cost(related, jnp.array([0, 1])).mean(), (outputs, related)

    value, found = jax.jit(loss)(params)
    for one, key in zip(found, ("outputs", "related"), strict=False):
        off = np.abs(np.asarray(one) - golden[key]).max()
        assert off <= 5e-5, (key, off)
        print(f"{name}: {key} {off:.1e}")
    assert abs(float(value) - golden["loss"]) <= 1e-5
    with jax.enable_x64(True):
        gradients = jax.jit(jax.grad(loss, has_aux=True))(wide(params))[0]
    ours = flat(gradients)
    assert {one.dtype for one in ours.values()} == {np.dtype(np.float64)}
    theirs = {
        line.theirs: line.back([np.asarray(ours[one]) for one in line.paths]) for line in lines
    }
    names = list(models.described(name)["shapes"])
    assert sorted(theirs) == sorted(names)
    worst = 0.0
    for key, norm, along in zip(names, golden["grad_norm"], golden["grad_along"], strict=True):
        g = theirs[key]
        if key.endswith("key.bias"):  # shifts all scores of a row alike: 0 but for rounding
            assert max(norm, np.sqrt((g**2).sum())) < 1e-6
            continue
        worst = max(worst, abs(np.sqrt((g**2).sum()) - norm) / norm)
        worst = max(worst, abs((g * rule.uniform(f"along {key}", g.shape)).sum() - along) / norm)
    print(f"{name}: gradients {worst:.1e}")
    assert worst <= 1e-4, worst


@pytest.mark.parametrize("name", NAMES)
def test_out_and_back_is_equal_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """Tensors by name, and the system that the written config tells of."""
    _, params, _ = loaded(name, tmp_path / "in")
    node, told = weights.system(tmp_path / "in"), models.described(name)["config"]
    config = config_of(completed(node))
    out = tmp_path / "out"
    folders.write(out, config, weights.names_of("bert").write(flat(params), np.float32))
    tensors, written = models.tensors(name), dict(folders.tensors(folders.files(out)))
    assert written.keys() == tensors.keys()
    for key, one in written.items():
        assert one.dtype == np.float32 and np.array_equal(one, tensors[key]), key
    assert canonical(weights.system(out)) == canonical(node)
    assert config["architectures"] == told["architectures"] and config["model_type"] == "bert"


def test_published_files_have_older_names_and_more_tensors(tmp_path: Path) -> None:
    """gamma and beta; pooler and the head for pairs, which a masked language model has not; copies
    of tied tensors; a table of positions.
    """
    _, wanted, _ = loaded("encoders/bert_masked", tmp_path / "new")
    tensors = models.tensors("encoders/bert_masked")
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): one
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


def test_what_is_not_known_is_named(tmp_path: Path) -> None:
    for number, (changes, message) in enumerate(
        (
            ({"architectures": ["BertForNextSentencePrediction"]}, "known are: BertForMaskedLM"),
            ({"is_decoder": True}, "is_decoder=True is not computed here"),
            ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
            ({"hidden_act": "tanh"}, "hidden_act='tanh'"),
        )
    ):
        folder = models.folder("encoders/bert_masked", tmp_path / str(number), **changes)
        with pytest.raises(UserError, match=message):
            weights.system(folder)
    node = weights.system(models.folder("encoders/bert_masked", tmp_path))
    with pytest.raises(UserError, match="system.norm='pre', it has 'post'"):
        config_of(completed({**node, "norm": "pre"}))
    with pytest.raises(UserError, match="system=bert has no counterpart .*: llama; decoder, bert"):
        config_of(completed(node), "llama")


def test_missing_tensors_of_a_head_are_named(tmp_path: Path) -> None:
    folder = models.folder("encoders/bert_tokens", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (folder / "config.json").write_text(json.dumps(config))
    system = system_of(weights.system(folder), config)
    params = jax.eval_shape(system.init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"]
    with pytest.raises(UserError, match=r"5 missing: cls\.predictions\.bias.*classifier\.bias"):
        weights.parameters(folder, params)
