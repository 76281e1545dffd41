"""StarCoder 2 (Lozhkov et al. 2024) in the files of `transformers`: the blocks of GPT-2 with grouped
heads and rotary positions. A GPT-2 whose attention was exchanged for these is written as one.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import rope
from attnlab.weights.foreign import ACTIVATIONS, TIED, ForeignConfig, Key, content_of, layer_nodes
from attnlab.weights.names import Name, Names, matrix, norm

ARCHITECTURES = {"starcoder2": "Starcoder2ForCausalLM"}

_H, _L = "model.layers.{i}", "layer_{i}"
NAMES = Names(
    (
        Name("model.embed_tokens.weight", "embed/embedding"),
        *matrix(f"{_H}.self_attn.q_proj", f"{_L}/attention/w_query"),
        *matrix(f"{_H}.self_attn.k_proj", f"{_L}/attention/w_key"),
        *matrix(f"{_H}.self_attn.v_proj", f"{_L}/attention/w_value"),
        *matrix(f"{_H}.self_attn.o_proj", f"{_L}/attention/out"),
        *matrix(f"{_H}.mlp.c_fc", f"{_L}/feed_forward/inner"),
        *matrix(f"{_H}.mlp.c_proj", f"{_L}/feed_forward/outer"),
        *norm(f"{_H}.input_layernorm", f"{_L}/around_attention/normalisation"),
        *norm(f"{_H}.post_attention_layernorm", f"{_L}/around_feed_forward/normalisation"),
        *norm("model.norm", "top"),
        Name("lm_head.weight", "out/kernel", transposed=True),
    ),
    prefix="model.",
    dropped=(r".*\.rotary_emb\.inv_freq",),
    tied={"lm_head.weight": "model.embed_tokens.weight"},
)


KEYS = {
    "width": Key("hidden_size", 3072),
    "hidden": Key("intermediate_size", 12288),
    "layers": Key("num_hidden_layers", 30),
    "attention.heads": Key("num_attention_heads", 24),
    "attention.key_heads": Key("num_key_value_heads", 2),
    "attention.head_width": Key("head_dim", 128),
    "normalisation.epsilon": Key("norm_epsilon", 1e-5),
    "feed_forward.name": Key("hidden_act", "gelu_pytorch_tanh", ACTIVATIONS),
    "attention.bias": Key("use_bias", True),
    "feed_forward.bias": Key("use_bias", True),
    "attention.dropout": Key("attention_dropout", 0.0),
    "dropout": Key("residual_dropout", 0.0),
    "embedding_dropout": Key("embedding_dropout", 0.0),
    "share": Key("tie_word_embeddings", True, TIED),
    "name": "decoder",
    "norm": "pre",
    "normalisation.name": "layer_norm",
    "positions.name": "none",
    "attention.name": "multihead",
    "attention.score.name": "scaled_dot",
    "hidden_dropout": 0.0,
}


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of StarCoder 2, describes, with rotary positions and a window if it has one; raises `UserError`
    for settings that attnlab does not compute.
    """
    node = file.system(KEYS)
    usual = node["width"] // node["attention"]["heads"]
    node["attention"]["head_width"] = file.count("head_dim", usual)
    node["attention"]["positions"] = rope.read(file, "full_attention")
    window = file.count("sliding_window", 0, least=0)
    return {**node, **({"visibility": {"name": "window", "width": window}} if window else {})}


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of StarCoder 2 for a complete config node `system`, by
    the attention of its first layer; raises `UserError` unless that is multihead with RoPE.
    Settings that it cannot express are found by reading it back.
    """
    attention = layer_nodes(system, "attention")[0]
    visibility = layer_nodes(system, "visibility")[0]
    if attention["name"] != "multihead" or attention["positions"]["name"] != "rope":
        raise UserError("it has multihead attention with rope positions")
    heads, positions = attention["heads"], attention["positions"]
    usual = {"key_heads": heads, "head_width": system["width"] // heads, "bias": False}
    heads_of = {name: attention[name] or value for name, value in usual.items()}
    filled = {**system, "attention": {**attention, **heads_of, "bias": bool(heads_of["bias"])}}
    return {
        "model_type": "starcoder2",
        **content_of(KEYS, filled),
        "sliding_window": visibility.get("width") if visibility["name"] == "window" else None,
        **rope.keys_of(positions, positions, kind),
    }
