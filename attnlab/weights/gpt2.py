"""GPT-2 (Radford et al. 2019) in the files of `transformers`: `Conv1D` layers, whose matrices are
[in,out] as ours are, and one for queries, keys and values together.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.weights.foreign import ACTIVATIONS, TIED, ForeignConfig, Key, content_of
from attnlab.weights.names import Name, Names, matrix, norm

ARCHITECTURES = {"gpt2": "GPT2LMHeadModel"}

_H, _L = "transformer.h.{i}", "layer_{i}"
_QKV = tuple(f"{_L}/attention/w_{name}" for name in ("query", "key", "value"))
NAMES = Names(
    (
        Name("transformer.wte.weight", "embed/embedding"),
        Name("transformer.wpe.weight", "positions/table"),
        *norm(f"{_H}.ln_1", f"{_L}/around_attention/normalisation"),
        Name(f"{_H}.attn.c_attn.weight", tuple(f"{part}/kernel" for part in _QKV)),
        Name(f"{_H}.attn.c_attn.bias", tuple(f"{part}/bias" for part in _QKV)),
        *matrix(f"{_H}.attn.c_proj", f"{_L}/attention/out", transposed=False),
        *norm(f"{_H}.ln_2", f"{_L}/around_feed_forward/normalisation"),
        *matrix(f"{_H}.mlp.c_fc", f"{_L}/feed_forward/inner", transposed=False),
        *matrix(f"{_H}.mlp.c_proj", f"{_L}/feed_forward/outer", transposed=False),
        *norm("transformer.ln_f", "top"),
        Name("lm_head.weight", "out/kernel", transposed=True),
    ),
    prefix="transformer.",
    dropped=(r".*\.attn\.(bias|masked_bias)",),  # the causal mask of old files
    tied={"lm_head.weight": "transformer.wte.weight"},
)


KEYS = {
    "name": "decoder",
    "width": Key("n_embd", 768),
    "attention.heads": Key("n_head", 12),
    "layers": Key("n_layer", 12),
    "hidden": Key("n_inner", 3072),
    "positions.length": Key("n_positions", 1024),
    "normalisation.epsilon": Key("layer_norm_epsilon", 1e-5),
    "feed_forward.name": Key("activation_function", "gelu_new", ACTIVATIONS),
    "attention.score.name": Key("scale_attn_weights", True, {True: "scaled_dot", False: "dot"}),
    "attention.dropout": Key("attn_pdrop", 0.1),
    "dropout": Key("resid_pdrop", 0.1),
    "embedding_dropout": Key("embd_pdrop", 0.1),
    "share": Key("tie_word_embeddings", True, TIED),
    "norm": "pre",
    "normalisation.name": "layer_norm",
    "positions.name": "learned",
    "attention.name": "multihead",
    "attention.bias": True,
    "hidden_dropout": 0.0,
}


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of GPT-2, describes; raises `UserError` for settings that attnlab does not compute.
    """
    file.only(scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    node = file.system(KEYS)
    return {**node, "hidden": file.count("n_inner", 4 * node["width"])}


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of GPT-2 for a complete config node `system`; `kind`
    is not used; raises `UserError` without learned positions. Settings that it cannot express are
    found by reading it back.
    """
    usual = {"n_inner": None} if system["hidden"] == 4 * system["width"] else {}
    return {"model_type": "gpt2", **content_of(KEYS, system), **usual}
