"""StarCoder 2 (Lozhkov et al. 2024) in the files of `transformers`: the blocks of GPT-2 with grouped
heads and rotary positions. A GPT-2 whose attention was exchanged for these is written as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import rope
from attnlab.weights.by_layer import of_layers
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.gpt2 import ACTIVATIONS
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


def system(file: ForeignConfig) -> dict[str, Any]:
    """The system of a config."""
    width, heads = file.count("hidden_size", 3072), file.count("num_attention_heads", 24)
    window = file.count("sliding_window", 0, least=0)
    bias = file.flag("use_bias", True)
    return {
        "name": "decoder",
        "width": width,
        "layers": file.count("num_hidden_layers", 30),
        "hidden": file.count("intermediate_size", 12288),
        "norm": "pre",
        "normalisation": {"name": "layer_norm", "epsilon": file.number("norm_epsilon", 1e-5)},
        "feed_forward": {
            "name": file.one_of("hidden_act", ACTIVATIONS, "gelu_pytorch_tanh"),
            "bias": bias,
        },
        "positions": {"name": "none"},
        "attention": {
            "name": "multihead",
            "heads": heads,
            "key_heads": file.count("num_key_value_heads", 2),
            "head_width": file.count("head_dim", width // heads),
            "bias": bias,
            "score": {"name": "scaled_dot"},
            "positions": rope.read(file, "full_attention"),
            "dropout": file.number("attention_dropout", 0.0),
        },
        **({"visibility": {"name": "window", "width": window}} if window else {}),
        "dropout": file.number("residual_dropout", 0.0),
        "embedding_dropout": file.number("embedding_dropout", 0.0),
        "hidden_dropout": 0.0,
        "share": "output" if file.flag("tie_word_embeddings", True) else "none",
    }


def config(of: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The config of a system, whole; what it cannot say, reading it back shows."""
    attention, visibility = of_layers(of, "attention")[0], of_layers(of, "visibility")[0]
    if attention["name"] != "multihead" or attention["positions"]["name"] != "rope":
        raise UserError("it has multihead attention with rope positions")
    heads, turned = attention["heads"], attention["positions"]
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "model_type": "starcoder2",
        "hidden_size": of["width"],
        "intermediate_size": of["hidden"],
        "num_hidden_layers": of["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": attention["key_heads"] or heads,
        "head_dim": attention["head_width"] or of["width"] // heads,
        "norm_epsilon": of["normalisation"].get("epsilon", 1e-5),
        "hidden_act": activations.get(of["feed_forward"]["name"], "gelu_pytorch_tanh"),
        "use_bias": bool(attention["bias"]),
        "sliding_window": visibility.get("width") if visibility["name"] == "window" else None,
        "attention_dropout": attention["dropout"],
        "residual_dropout": of["dropout"],
        "embedding_dropout": of["embedding_dropout"],
        "tie_word_embeddings": of["share"] == "output",
        **rope.written(turned, turned, kind),
    }
