"""GPT-2 (Radford et al. 2019) in the files of `transformers`: `Conv1D` layers, whose matrices are
[in,out] as ours are, and one for queries, keys and values together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.names import Name, Names, matrix, norm

ARCHITECTURES = {"gpt2": "GPT2LMHeadModel"}
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

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


def system(file: ForeignConfig) -> dict[str, Any]:
    """The system of a config."""
    file.only(scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width, heads = file.count("n_embd", 768), file.count("n_head", 12)
    scaled = file.flag("scale_attn_weights", True)
    return {
        "name": "decoder",
        "width": width,
        "layers": file.count("n_layer", 12),
        "hidden": file.count("n_inner", 4 * width),
        "norm": "pre",
        "normalisation": {"name": "layer_norm", "epsilon": file.number("layer_norm_epsilon", 1e-5)},
        "feed_forward": {"name": file.one_of("activation_function", ACTIVATIONS, "gelu_new")},
        "positions": {"name": "learned", "length": file.count("n_positions", 1024)},
        "attention": {
            "name": "multihead",
            "heads": heads,
            "bias": True,
            "score": {"name": "scaled_dot" if scaled else "dot"},
            "dropout": file.number("attn_pdrop", 0.1),
        },
        "dropout": file.number("resid_pdrop", 0.1),
        "embedding_dropout": file.number("embd_pdrop", 0.1),
        "hidden_dropout": 0.0,
        "share": "output" if file.flag("tie_word_embeddings", True) else "none",
    }


def config(of: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The config of a system, whole; what it cannot say, reading it back shows."""
    if of["positions"]["name"] != "learned":
        raise UserError("it has learned positions")
    attention, width = of["attention"], of["width"]
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "model_type": "gpt2",
        "n_embd": width,
        "n_head": attention.get("heads", 1),
        "n_layer": of["layers"],
        "n_inner": None if of["hidden"] == 4 * width else of["hidden"],
        "n_positions": of["positions"]["length"],
        "layer_norm_epsilon": of["normalisation"].get("epsilon", 1e-5),
        "activation_function": names.get(of["feed_forward"]["name"], "gelu_new"),
        "scale_attn_weights": attention.get("score", {}).get("name") != "dot",
        "attn_pdrop": attention.get("dropout", 0.0),
        "resid_pdrop": of["dropout"],
        "embd_pdrop": of["embedding_dropout"],
        "tie_word_embeddings": of["share"] == "output",
    }
