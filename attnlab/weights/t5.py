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
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.names import Name, Names

ARCHITECTURES = {"t5": "T5ForConditionalGeneration"}
SYSTEMS = ("transformer",)
PLAIN = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
GATED = {"relu": "reglu", "gelu": "geglu_tanh", "gelu_new": "geglu_tanh", "silu": "swiglu"}
FORWARDS = {**PLAIN, **{f"gated-{theirs}": ours for theirs, ours in GATED.items()}}
"""By the key `feed_forward_proj`. "gated-gelu" means the tanh form."""
HEAD, EMBEDDING = "lm_head.weight", "shared.weight"

_HALVES = {"encoder": ("SelfAttention",), "decoder": ("SelfAttention", "EncDecAttention")}
_OURS = {"SelfAttention": "self", "EncDecAttention": "cross"}
_LINEAR = (("q", "w_query"), ("k", "w_key"), ("v", "w_value"), ("o", "out"))


def _of_stack(stack: str) -> list[Name]:
    """The lines of a stack."""
    lines = []
    theirs, ours = f"{stack}.block.{{i}}.layer", f"{stack}_{{i}}"
    for place, half in enumerate(_HALVES[stack]):
        name = _OURS[half]
        lines += [
            Name(f"{theirs}.{place}.{half}.{part}.weight", f"{ours}/{name}_attention/{path}/kernel",
                 transposed=True)
            for part, path in _LINEAR
        ]  # fmt: skip
        if name == "self":
            lines.append(
                Name(
                    f"{stack}.block.0.layer.0.{half}.relative_attention_bias.weight",
                    f"{stack}_positions/table",
                )
            )
        around = f"{ours}/around_{name}/normalisation/scale"
        lines.append(Name(f"{theirs}.{place}.layer_norm.weight", around))
    place = len(_HALVES[stack])
    inner = (("wi_0", "gate"), ("wi_1", "inner"), ("wi", "inner"), ("wo", "outer"))
    for part, path in inner:
        beside = f"{ours}/feed_forward/gate/kernel" if part.startswith("wi_") else ""
        lines.append(
            Name(
                f"{theirs}.{place}.DenseReluDense.{part}.weight",
                f"{ours}/feed_forward/{path}/kernel",
                transposed=True,
                beside=beside,
            )
        )
    around = f"{ours}/around_feed_forward/normalisation/scale"
    lines.append(Name(f"{theirs}.{place}.layer_norm.weight", around))
    return [*lines, Name(f"{stack}.final_layer_norm.weight", f"top_{stack}/scale")]


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


def system(file: ForeignConfig) -> dict[str, Any]:
    """The system of a config, and of its tensors where there are some."""
    file.only(is_encoder_decoder=True)
    scaled = file.flag("scale_decoder_outputs", file.flag("tie_word_embeddings", True))
    untied = file.differ(HEAD, EMBEDDING)
    if untied is None:
        untied = not file.flag("tie_word_embeddings", True)
    looks = {
        "name": "multihead",
        "heads": file.count("num_heads", 8),
        "head_width": file.count("d_kv", 64),
        "bias": False,
        "score": {"name": "dot"},
        "dropout": file.number("dropout_rate", 0.1),
    }
    biases = {
        "name": "t5",
        "buckets": file.count("relative_attention_num_buckets", 32),
        "max_distance": file.count("relative_attention_max_distance", 128),
    }
    layers = file.count("num_layers", 6)
    return {
        "name": "transformer",
        "width": file.count("d_model", 512),
        "layers": layers,
        "decoder_layers": file.count("num_decoder_layers", layers),
        "hidden": file.count("d_ff", 2048),
        "norm": "pre",
        "normalisation": {"name": "rms_norm", "epsilon": file.number("layer_norm_epsilon", 1e-6)},
        "feed_forward": {"name": file.one_of("feed_forward_proj", FORWARDS, "relu"), "bias": False},
        "positions": {"name": "none"},
        "scaled_embedding": False,
        "share_positions": True,
        "encoder_attention": {**looks, "positions": biases},
        "decoder_attention": {**looks, "positions": biases},
        "cross_attention": looks,
        "dropout": file.number("dropout_rate", 0.1),
        "share": "input" if untied else "all",
        "scaled_output": scaled,
    }


def config(of: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The config of a system, whole; what it cannot say, reading it back shows."""
    looks = of["encoder_attention"]
    if looks["name"] != "multihead" or looks["positions"]["name"] != "t5":
        raise UserError("it has multihead attention with the positions t5")
    activations = {ours: theirs for theirs, ours in reversed(FORWARDS.items())}
    activations["geglu_tanh"] = "gated-gelu"  # as T5 1.1 says it
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
        "feed_forward_proj": activations.get(of["feed_forward"]["name"], "relu"),
        "tie_word_embeddings": of["share"] == "all",
        "scale_decoder_outputs": of["scaled_output"],
    }


def run(file: ForeignConfig) -> dict[str, Any]:
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
