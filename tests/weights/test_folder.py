"""Folders of weights: single files and shards, what is refused, and by which names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from attnlab import weights
from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.names import flat, nested
from tests.weights import models
from tests.weights.systems import shapes_of


def wanted(name: str, folder: Path) -> Any:
    """The shapes of the system that a folder tells of."""
    return shapes_of(weights.system(folder), models.described(name)["config"]["vocab_size"])


def rewritten(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_shards_are_read_as_one_file_is(tmp_path: Path) -> None:
    whole = models.folder("llama", tmp_path / "whole")
    params = wanted("llama", whole)
    parts = folders.write(
        tmp_path / "parts", folders.settings(whole), models.tensors("llama"), shard=30_000
    )
    assert len(parts) > 4 and parts[0].name.startswith("model-00001-of-0000")
    one = flat(weights.parameters(parts[0].parent, params))
    other = flat(weights.parameters(whole, params))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[path], other[path]) for path in one)


def test_half_precision_is_widened(tmp_path: Path) -> None:
    folder = models.folder("gpt2", tmp_path)
    params = wanted("gpt2", folder)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        rewritten(folder, {key: one.astype(dtype) for key, one in models.tensors("gpt2").items()})
        found = flat(weights.parameters(folder, params))
        assert {one.dtype for one in found.values()} == {np.dtype(np.float32)}
        table = models.tensors("gpt2")["transformer.wte.weight"].astype(dtype).astype(np.float32)
        assert np.array_equal(found["embed/embedding"], table)


def test_files_without_a_prefix_and_with_buffers_and_a_tied_copy(tmp_path: Path) -> None:
    """As the files of the first GPT-2 have them."""
    folder = models.folder("gpt2", tmp_path)
    params = wanted("gpt2", folder)
    before = flat(weights.parameters(folder, params))
    tensors = models.tensors("gpt2")
    bare = {key.removeprefix("transformer."): one for key, one in tensors.items()}
    rewritten(folder, {**bare, "h.0.attn.bias": np.ones((1, 1, 4, 4), np.float32)})
    after = flat(weights.parameters(folder, params))
    assert all(np.array_equal(before[path], after[path]) for path in before)
    copy = tensors["transformer.wte.weight"].copy()
    rewritten(folder, {**tensors, "lm_head.weight": copy})
    weights.parameters(folder, params)
    rewritten(folder, {**tensors, "lm_head.weight": copy + 1})
    with pytest.raises(UserError, match="1 that the config does not have: lm_head.weight"):
        weights.parameters(folder, params)


def test_missing_extra_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    folder = models.folder("llama", tmp_path)
    params, tensors = wanted("llama", folder), models.tensors("llama")
    for number in range(3):
        del tensors[f"model.layers.{number}.mlp.up_proj.weight"]
    del tensors["model.norm.weight"]
    tensors["model.layers.7.mlp.up_proj.weight"] = np.zeros((55, 36), np.float32)
    tensors["lm_head.weight"] = np.zeros((100, 36), np.float32)
    rewritten(folder, tensors)
    for used in (weights.check, weights.parameters):
        with pytest.raises(UserError) as error:
            used(folder, params)
        told = str(error.value)
        assert (
            "4 missing: model.layers.0.mlp.up_proj.weight, model.layers.1.mlp.up_proj.weight,"
            " model.layers.2.mlp.up_proj.weight and 1 more" in told
        )
        assert "1 that the config does not have: model.layers.7.mlp.up_proj.weight" in told
        assert "1 of another shape: lm_head.weight [100, 36] instead of [101, 36]" in told


def test_a_system_that_the_table_does_not_know_is_told(tmp_path: Path) -> None:
    folder = models.folder("llama", tmp_path)
    node = weights.system(folder)
    node["attention"] = {**node["attention"], "score": {"name": "general"}, "positions": "none"}
    with pytest.raises(UserError, match="no place for layer_0/attention/score/"):
        weights.parameters(folder, shapes_of(node, 101))


def test_what_is_no_such_folder(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            folders.settings(tmp_path / "it")
            weights.system(tmp_path / "it")
            folders.files(tmp_path / "it")

    refused("is no folder")
    (tmp_path / "it").mkdir()
    refused(r"has no config\.json")
    config = tmp_path / "it" / "config.json"
    config.write_text("{")
    refused("is not JSON")
    config.write_text("[]")
    refused("holds no JSON object")
    config.write_text("{}")
    refused("it has no model_type; known are: gpt2, llama, mistral")
    config.write_text('{"model_type": "mamba"}')
    refused("model_type='mamba'; known are: gpt2, llama, mistral")
    config.write_text('{"model_type": "gpt2"}')
    refused("has neither model.safetensors nor")
    (tmp_path / "it" / "pytorch_model.bin").write_bytes(b"")
    refused("in pytorch_model.bin only, which is not read, .* convert it: python -c")
    (tmp_path / "it" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    refused("damaged or no safetensors file")
    models.folder("gpt2", tmp_path / "it")
    file = tmp_path / "it" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    refused("damaged or no safetensors file")


def test_an_index_that_does_not_fit(tmp_path: Path) -> None:
    models.folder("gpt2", tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for content, message in (
        ({}, "has no 'weight_map'"),
        ({"weight_map": {"a": "b.safetensors"}}, "names b.safetensors, which is not in the folder"),
        ({"weight_map": {"a": "../model.safetensors"}}, "which is not in the folder"),
        ({"weight_map": {"a": "model.safetensors"}}, "names a, which no file of the folder has"),
    ):
        index.write_text(json.dumps(content))
        with pytest.raises(UserError, match=message):
            folders.files(tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpt2", {"n_embd": "12"}, "n_embd='12'; expected a whole number"),
        ("gpt2", {"activation_function": "gelu_new2"}, "did you mean 'gelu_new'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "is not computed here"),
        ("llama", {"hidden_size": None}, "lacks 'hidden_size'"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic"}},
            "rope_type='dynamic'; choose from",
        ),
        ("llama", {"rope_parameters": [1]}, "rope_parameters=.* expected an object"),
        ("gemma2", {"layer_types": ["full_attention"]}, "expected 3 of full_attention"),
        ("gemma2", {"layer_types": 3}, "expected 3 of full_attention"),
        ("gemma2", {"layer_types": [["full_attention"]] * 3}, "expected 3 of full_attention"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads=0; expected at least 1"),
        ("gpt2", {"n_layer": -1}, "n_layer=-1; expected at least 1"),
        ("gemma2", {"layer_types": None, "sliding_window_pattern": 0}, "expected at least 1"),
    ],
)
def test_a_config_that_asks_for_something_else(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        weights.system(models.folder(name, tmp_path, **changes))


def test_scores_that_are_not_scaled(tmp_path: Path) -> None:
    scaled, plain = (
        weights.system(models.folder("gpt2", tmp_path, scale_attn_weights=one))["attention"][
            "score"
        ]
        for one in (True, False)
    )
    assert (scaled, plain) == ({"name": "scaled_dot"}, {"name": "dot"})


def test_layers_with_a_window_by_old_keys(tmp_path: Path) -> None:
    """Files that are older than `layer_types`: Qwen's windows begin at a layer, Gemma's end at every
    second or sixth, Mistral's are everywhere, and what says None has none. (By the second letters of
    a pattern: "one" has none, "other" has it.)
    """

    def found(name: str, **changes: Any) -> Any:
        node = weights.system(models.folder(name, tmp_path, layer_types=None, **changes))
        seen = node.get("visibility")
        return seen and ("".join(one[1] for one in seen.get("pattern", ())) or seen)

    assert found("qwen2") == "ntt"
    assert found("qwen2", use_sliding_window=False) is None
    assert found("gemma2") == "tnt"
    assert found("gemma3", sliding_window_pattern=3) == "ttnt"
    assert found("mistral") == {"name": "window", "width": 5}
    assert found("mistral", sliding_window=None) is None


def test_trees_and_paths() -> None:
    tree = {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    assert flat(tree) == {"a/b/c": 1, "a/d": 2, "e": 3}
    assert nested(flat(tree)) == tree
