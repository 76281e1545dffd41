"""Folders of weights: single files and shards, what is refused, and by which names; and tables of names by
themselves.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from attnlab import weights
from attnlab.errors import UserError
from attnlab.weights import folder as folders
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.names import Name, Names, flat, nested
from attnlab.weights.writing import config_of, with_defaults
from tests.weights import models
from tests.weights.comparing import shapes_of, system_and_shapes


def wanted(name: str, folder: Path) -> Any:
    """The shapes of the system that a folder tells of."""
    return system_and_shapes(name, folder)[1]


def rewritten(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_shards_are_read_as_one_file_is(tmp_path: Path) -> None:
    whole = models.folder("llama", tmp_path / "whole")
    params = wanted("llama", whole)
    settings, tensors = folders.settings(whole), models.tensors("llama")
    parts = folders.write(tmp_path / "parts", settings, tensors, shard=30_000)
    assert len(parts) > 4 and parts[0].name.startswith("model-00001-of-0000")
    one, other = (weights.parameters(path, params) for path in (parts[0].parent, whole))
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_half_precision_is_widened(tmp_path: Path) -> None:
    folder = models.folder("gpt2", tmp_path)
    params = wanted("gpt2", folder)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        rewritten(folder, {key: leaf.astype(dtype) for key, leaf in models.tensors("gpt2").items()})
        actual = flat(weights.parameters(folder, params))
        assert {leaf.dtype for leaf in actual.values()} == {np.dtype(np.float32)}
        table = models.tensors("gpt2")["transformer.wte.weight"].astype(dtype).astype(np.float32)
        assert np.array_equal(actual["embed/embedding"], table)


def test_files_without_a_prefix_and_with_buffers_and_a_tied_copy(tmp_path: Path) -> None:
    """As the files of the first GPT-2 have them."""
    folder = models.folder("gpt2", tmp_path)
    params = wanted("gpt2", folder)
    before = weights.parameters(folder, params)
    tensors = models.tensors("gpt2")
    bare = {key.removeprefix("transformer."): leaf for key, leaf in tensors.items()}
    rewritten(folder, {**bare, "h.0.attn.bias": np.ones((1, 1, 4, 4), np.float32)})
    jax.tree.map(np.testing.assert_array_equal, weights.parameters(folder, params), before)
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
        line = str(error.value)
        three = ", ".join(f"model.layers.{number}.mlp.up_proj.weight" for number in range(3))
        assert f"4 missing: {three} and 1 more" in line
        assert "1 that the config does not have: model.layers.7.mlp.up_proj.weight" in line
        assert "1 of another shape: lm_head.weight [100, 36] instead of [101, 36]" in line


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
    refused("no JSON that can be used")
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


NUMBERS = [
    (np.int8, "ln_f.weight has numbers of type I8; weights are F32, F16, BF16, F64"),
    (np.int64, "numbers of type I64"),
    (np.bool_, "numbers of type BOOL"),
    ("F8_E4M3", "numbers of type F8_E4M3"),
    (np.float64, ""),
    (np.nan, "ln_f.weight has NaN or infinity among its numbers"),
    (-np.inf, "ln_f.weight has NaN or infinity among its numbers"),
    (1e300, "ln_f.weight has numbers that float32 cannot hold"),
]


@pytest.mark.parametrize(("kind", "words"), NUMBERS)
def test_numbers_that_are_no_weights(kind: Any, words: str, tmp_path: Path) -> None:
    """By every way in; a type that NumPy lacks, too."""
    folder = models.folder("gpt2", tmp_path)
    params, tensors = wanted("gpt2", folder), models.tensors("gpt2")
    name = "transformer.ln_f.weight"
    if isinstance(kind, type):
        rewritten(folder, {**tensors, name: tensors[name].astype(kind)})
    elif isinstance(kind, str):
        named_as(folder, name, kind)
    else:
        tensors[name] = np.full(tensors[name].shape, kind)
        rewritten(folder, tensors)
    for used in (weights.check, weights.parameters):
        with pytest.raises(UserError, match=words) if words else contextlib.nullcontext():
            used(folder, params)


def named_as(folder: Path, name: str, kind: str) -> None:
    """Says of a tensor of bytes that its numbers are of a type of one byte."""
    tensors = models.tensors("gpt2")
    rewritten(folder, {**tensors, name: tensors[name].astype(np.uint8)})
    file = folder / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header[name]["dtype"] = kind
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


def test_two_truths_are_one_too_many(tmp_path: Path) -> None:
    """A file beside other files with an index; a tensor in two of these; an adapter."""
    whole = models.folder("llama", tmp_path / "whole")
    folder, settings = tmp_path / "parts", folders.settings(whole)
    folders.write(folder, settings, models.tensors("llama"), shard=30_000)
    first, second = sorted(folder.glob("model-*"))[:2]
    save_file({**load_file(first), "model.norm.weight": np.ones(36, np.float32)}, first)
    with pytest.raises(UserError, match=r"has model\.norm\.weight, which .* has too"):
        folders.files(folder)
    save_file({"a": np.ones(2, np.float32)}, folder / "model.safetensors")
    save_file({"b": np.ones(2, np.float32)}, second)
    index = {"weight_map": {"b": second.name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="has its weights twice, in model.safetensors and in"):
        folders.files(folder)
    (whole / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="has an adapter_config.json; merge the adapter"):
        weights.system(whole)


def test_half_precision_that_overflows_is_not_written(tmp_path: Path) -> None:
    folder = models.folder("gpt2", tmp_path)
    params = flat(weights.parameters(folder, wanted("gpt2", folder)))
    params["top/scale"] = params["top/scale"] + np.float32(70_000)
    names = weights.names_of("gpt2")
    assert np.isfinite(names.write(params, np.float32)["transformer.ln_f.weight"]).all()
    with pytest.raises(UserError, match="ln_f.weight has numbers that float16 cannot hold"):
        names.write(params, np.float16)
    params["top/scale"][0] = np.nan
    with pytest.raises(UserError, match="ln_f.weight has NaN or infinity"):
        names.write(params, np.float32)


def test_a_run_of_a_model_that_writes_has_no_data_until_some_is_named(tmp_path: Path) -> None:
    for name in ("gpt2", "llama", "pairs/bart", "encoders/bert_masked"):
        assert weights.run_config(models.folder(name, tmp_path / name))["data"] == "none"


WRONG: tuple[Any, ...] = ([], ["gpt2"], {}, {"a": 1}, "x", 3, -1, 0, 0.5, True, 10**12, [[1], 2])
"""Values, one of which is of another kind than any key's."""
EVERY = [
    str(path.relative_to(models.GOLDEN))[:-5]
    for path in sorted(models.GOLDEN.rglob("*.json"))
    if path.parent.name != "scores"  # of folders that are here already
]


@pytest.mark.parametrize("name", EVERY)
def test_a_value_of_another_kind_is_one_line(name: str) -> None:
    """Every key of every golden config, and those that a family may have beside them."""
    content = models.described(name)["config"]
    more = "id2label label_names pretrained_cfg layer_types rope_scaling num_classes"
    for key in [*content, *more.split()]:
        for value in WRONG:
            read = ForeignConfig({**content, key: value}, "config.json")
            try:
                module = weights.family(weights.kind_of(read.content, read.where))
                module.system(read)
                for part in ("run", "pictures"):
                    getattr(module, part, lambda _: None)(read)
                read.labels()
            except UserError as error:
                assert "\n" not in str(error)


ASKED = [
    ("gpt2", {"model_type": ["gpt2"]}, r"model_type=\['gpt2'\]; known are: gpt2"),
    ("encoders/bert_texts", {"id2label": 3}, "id2label=3; expected names by number"),
    ("encoders/bert_texts", {"id2label": {"0": "a", "2": "b"}}, "names by number, from 0 on"),
    ("encoders/bert_texts", {"id2label": {"0": "a", "1": "a"}}, "a list of different names"),
    ("encoders/bert_texts", {"problem_type": "regression"}, "problem_type='regression' is not"),
    ("encoders/bert_texts", {"architectures": [["x"]]}, "architectures=.* known are"),
    ("images/vit", {"image_size": [6.5, 9]}, "image_size=6.5; expected a whole number"),
    ("images/vit", {"problem_type": "multi_label_classification"}, "is not computed here"),
    ("gpt2", {"n_layer": 10**9}, "n_layer=1000000000; expected at most 4,096"),
    ("gpt2", {"n_embd": 10**12}, "n_embd=1000000000000; expected at most"),
    ("gpt2", {"layer_norm_epsilon": -1}, "layer_norm_epsilon=-1.0; expected a number from 0"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config says that the weigh"),
    ("llama", {"final_logit_softcapping": 3.0}, "softcapping=3.0; expected null"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "softcapping=50.0; expected null, for trans"),
    ("pairs/bart", {"encoder_layerdrop": 0.1}, "encoder_layerdrop=0.1 is not computed here"),
    ("gpt2", {"n_embd": "12"}, "n_embd='12'; expected a whole number"),
    ("gpt2", {"activation_function": "gelu_new2"}, "did you mean 'gelu_new'"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "is not computed here"),
    ("llama", {"hidden_size": None}, "lacks 'hidden_size'"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic"}}, "rope_type='dynamic'; choose"),
    ("llama", {"rope_parameters": [1]}, "rope_parameters=.* expected an object"),
    ("gemma2", {"layer_types": ["full_attention"]}, "expected 3 of full_attention"),
    ("gemma2", {"layer_types": [["full_attention"]] * 3}, "expected 3 of full_attention"),
    ("llama", {"num_attention_heads": 0}, "num_attention_heads=0; expected at least 1"),
    ("gpt2", {"n_layer": -1}, "n_layer=-1; expected at least 1"),
    ("gemma2", {"layer_types": None, "sliding_window_pattern": 0}, "expected at least 1"),
    ("encoders/bert_masked", {"architectures": ["Bert"]}, "known are: BertForMaskedLM"),
    ("encoders/bert_masked", {"is_decoder": True}, "is_decoder=True is not computed here"),
    ("encoders/bert_masked", {"position_embedding_type": "relative_key"}, "='relative_key'"),
    ("encoders/bert_masked", {"hidden_act": "tanh"}, "hidden_act='tanh'"),
    ("pairs/t5", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj='gated-tanh'"),
    ("pairs/bart", {"decoder_ffn_dim": 50}, "encoder_ffn_dim=51 and decoder_ffn_dim=50"),
    ("pairs/bart", {"tie_word_embeddings": False}, "tie_word_embeddings=False is not computed"),
    ("images/vit", {"architectures": ["ViTModel"]}, "known is ViTForImageClassification"),
    ("images/vit", {"image_size": 7}, "patch_size=3 does not divide image_size=7 x 7"),
    ("images/vit", {"hidden_act": "tanh"}, "hidden_act='tanh'"),
    ("images/resnet18", {"architecture": "resnet18d"}, "architecture='resnet18d'; known"),
    ("images/resnet18", {"model_args": {"act_layer": "silu"}}, "model_args=.* not known"),
]


@pytest.mark.parametrize(("name", "changes", "message"), ASKED)
def test_a_config_that_asks_for_something_else(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = models.folder(name, tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        weights.system(folder)
        weights.labels(folder)


def test_a_key_that_is_not_there_is_what_its_family_takes() -> None:
    """Which is not what null means."""
    key_heads, cap = "num_key_value_heads", "attn_logit_softcapping"
    content = models.described("gemma2")["config"]
    content = {key: one for key, one in content.items() if key not in (key_heads, cap)}

    system = weights.family("gemma2").system
    usual, nulls = (
        system(ForeignConfig({**content, **changes}, "it"))["attention"]
        for changes in ({}, {key_heads: None, cap: None})
    )
    assert (usual["key_heads"], usual["score"]["cap"]) == (4, 50.0)
    assert (nulls["key_heads"], nulls["score"]["name"]) == (nulls["heads"], "scaled_dot")


def test_a_soft_cap_is_not_written_for_a_type_that_passes_over_it() -> None:
    content = ForeignConfig(models.described("gemma3")["config"], "it")
    node = weights.family("gemma3_text").system(content)
    capped = {"name": "soft_capped", "cap": 50.0}
    for one in ("one", "other"):
        part = node["attention"][one]
        node["attention"][one] = {**part, "score": {**capped, "score": part["score"]}}
    with pytest.raises(UserError, match="transformers computes no such cap in this type of model"):
        config_of(with_defaults(node), "gemma3_text")


def test_scores_that_are_not_scaled(tmp_path: Path) -> None:
    for scaled, name in ((True, "scaled_dot"), (False, "dot")):
        node = weights.system(models.folder("gpt2", tmp_path, scale_attn_weights=scaled))
        assert node["attention"]["score"] == {"name": name}


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
    assert flat(tree) == {"a/b/c": 1, "a/d": 2, "e": 3} and nested(flat(tree)) == tree


def test_layers_are_numbers() -> None:
    """The tenth comes after the ninth, as in the files of others."""
    table = Names((Name("h.{i}.w", "layer_{i}/kernel", transposed=True),), prefix="")
    parameters = {f"layer_{i}/kernel": np.full((2, 3), i) for i in (10, 2, 0, 11)}
    written = table.write(parameters, np.float32)
    assert list(written) == ["h.0.w", "h.2.w", "h.10.w", "h.11.w"]
    assert all(x.shape == (3, 2) and x[0, 0] == int(name[2:-2]) for name, x in written.items())


def test_a_tensor_of_several_parameters_is_cut_and_joined() -> None:
    line = Name("qkv", ("q", "k"))
    tensor = np.arange(10.0).reshape(2, 5)
    parts = line.split(tensor, [(2, 3), (2, 2)])
    assert [part.shape for part in parts] == [(2, 3), (2, 2)]
    assert np.array_equal(line.join(parts), tensor) and line.shape([(2, 3), (2, 2)]) == (2, 5)
