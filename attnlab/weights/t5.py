"""T5 (Raffel et al. 2020) in the files of `transformers`, versions 1.0 and 1.1: one table of relative
biases for a stack, in its first layer; scores that are not scaled; no biases; H D free of d.

    version    feed-forward             head
    1.0        relu                     the embedding, its input times d^-1/2
    1.1        gated, gelu_tanh         a matrix of its own

Which of the two a head is, only the tensors say: since version 5 `transformers` writes
`tie_word_embeddings` as true for both, and ties nothing where a file has two different matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.names import Name, Names
from attnlab.weights.told import Told

ARCHITECTURES = {"t5": "T5ForConditionalGeneration"}
SYSTEMS = ("transformer",)
PLAIN = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
GATED = {"relu": "reglu", "gelu": "geglu_tanh", "gelu_new": "geglu_tanh", "silu": "swiglu"}
FORWARDS = {**PLAIN, **{f"gated-{one}": ours for one, ours in GATED.items()}}
"""By the key `feed_forward_proj`. "gated-gelu" means the tanh form."""
HEAD, EMBEDDING = "lm_head.weight", "shared.weight"

_HALVES = {"encoder": ("SelfAttention",), "decoder": ("SelfAttention", "EncDecAttention")}
_OURS = {"SelfAttention": "self", "EncDecAttention": "cross"}
_LINEAR = (("q", "w_query"), ("k", "w_key"), ("v", "w_value"), ("o", "out"))


def _of_stack(stack: str) -> list[Name]:
    """The lines of a stack."""
    found = []
    theirs, ours = f"{stack}.block.{{i}}.layer", f"{stack}_{{i}}"
    for place, half in enumerate(_HALVES[stack]):
        name = _OURS[half]
        found += [
            Name(f"{theirs}.{place}.{half}.{one}.weight", f"{ours}/{name}_attention/{other}/kernel",
                 transposed=True)
            for one, other in _LINEAR
        ]  # fmt: skip
        if name == "self":
            found.append(
                Name(
                    f"{stack}.block.0.layer.0.{half}.relative_attention_bias.weight",
                    f"{stack}_positions/table",
                )
            )
        around = f"{ours}/around_{name}/normalisation/scale"
        found.append(Name(f"{theirs}.{place}.layer_norm.weight", around))
    place = len(_HALVES[stack])
    inner = (("wi_0", "gate"), ("wi_1", "inner"), ("wi", "inner"), ("wo", "outer"))
    for one, other in inner:
        beside = f"{ours}/feed_forward/gate/kernel" if one.startswith("wi_") else ""
        found.append(
            Name(
                f"{theirs}.{place}.DenseReluDense.{one}.weight",
                f"{ours}/feed_forward/{other}/kernel",
                transposed=True,
                beside=beside,
            )
        )
    around = f"{ours}/around_feed_forward/normalisation/scale"
    found.append(Name(f"{theirs}.{place}.layer_norm.weight", around))
    return [*found, Name(f"{stack}.final_layer_norm.weight", f"top_{stack}/scale")]


NAMES = Names(
    (
        Name(EMBEDDING, "embed_target/embedding"),
        *_of_stack("encoder"),
        *_of_stack("decoder"),
        Name(HEAD, "out/kernel", transposed=True),
    ),
    prefix="",
    dropped=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    tied=dict.fromkeys(
        (HEAD, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), EMBEDDING
    ),
)


def system(told: Told) -> dict[str, Any]:
    """The system of a config, and of its tensors where there are some."""
    told.only(is_encoder_decoder=True)
    scaled = told.flag("scale_decoder_outputs", told.flag("tie_word_embeddings", True))
    untied = told.differ(HEAD, EMBEDDING)
    if untied is None:
        untied = not told.flag("tie_word_embeddings", True)
    looks = {
        "name": "multihead",
        "heads": told.count("num_heads", 8),
        "head_width": told.count("d_kv", 64),
        "bias": False,
        "score": {"name": "dot"},
        "dropout": told.number("dropout_rate", 0.1),
    }
    biases = {
        "name": "t5",
        "buckets": told.count("relative_attention_num_buckets", 32),
        "max_distance": told.count("relative_attention_max_distance", 128),
    }
    layers = told.count("num_layers", 6)
    return {
        "name": "transformer",
        "width": told.count("d_model", 512),
        "layers": layers,
        "decoder_layers": told.count("num_decoder_layers", layers),
        "hidden": told.count("d_ff", 2048),
        "norm": "pre",
        "normalisation": {"name": "rms_norm", "epsilon": told.number("layer_norm_epsilon", 1e-6)},
        "feed_forward": {"name": told.one_of("feed_forward_proj", FORWARDS, "relu"), "bias": False},
        "positions": {"name": "none"},
        "scaled_embedding": False,
        "share_positions": True,
        "encoder_attention": {**looks, "positions": biases},
        "decoder_attention": {**looks, "positions": biases},
        "cross_attention": looks,
        "dropout": told.number("dropout_rate", 0.1),
        "share": "input" if untied else "all",
        "scaled_output": scaled,
    }


def config(of: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The config of a system, whole; what it cannot say, reading it back shows."""
    looks = of["encoder_attention"]
    if looks["name"] != "multihead" or looks["positions"]["name"] != "t5":
        raise UserError("it has multihead attention with the positions t5")
    theirs = {ours: one for one, ours in reversed(FORWARDS.items())}
    theirs["geglu_tanh"] = "gated-gelu"  # as T5 1.1 says it
    return {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "d_model": of["width"],
        "d_kv": looks["head_width"] or of["width"] // looks["heads"],
        "d_ff": of["hidden"],
        "num_layers": of["layers"],
        "num_decoder_layers": of["decoder_layers"] or of["layers"],
        "num_heads": looks["heads"],
        "relative_attention_num_buckets": looks["positions"]["buckets"],
        "relative_attention_max_distance": looks["positions"]["max_distance"],
        "dropout_rate": of["dropout"],
        "layer_norm_epsilon": of["normalisation"].get("epsilon", 1e-6),
        "feed_forward_proj": theirs.get(of["feed_forward"]["name"], "relu"),
        "tie_word_embeddings": of["share"] == "all",
        "scale_decoder_outputs": of["scaled_output"],
    }


def run(told: Told) -> dict[str, Any]:
    """Of a config of a run, what it says beside the system."""
    return tuned(512)


def tuned(longest: int) -> dict[str, Any]:
    """That of a model of pairs of texts whose positions reach so far."""
    length = max(2, min(128, longest // 2))
    return {
        "task": "text_to_text",
        "data": "none",
        "batch": {"size": 16, "max_length": length, "buckets": (max(1, length // 2), length)},
        "decoding": {"max_ratio": 1.0, "max_extra": min(50, longest - length)},
    }
