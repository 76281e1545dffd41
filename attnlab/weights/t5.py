"""T5 (Raffel et al. 2020) in the files of `transformers`, versions 1.0 and 1.1: one table of relative
biases for a stack, in its first layer; scores that are not scaled; no biases; H D free of d.

    version    feed-forward             head
    1.0        relu                     the embedding, its input times d^-1/2
    1.1        gated, gelu_tanh         a matrix of its own

Which of the two a head is, only the tensors say: since version 5 `transformers` writes
`tie_word_embeddings` as true for both, and ties nothing where a file has two different matrices.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.foreign import ForeignConfig, Key, content_of
from attnlab.weights.names import Name, Names

ARCHITECTURES = {"t5": "T5ForConditionalGeneration"}
SYSTEMS = ("transformer",)
PLAIN = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
GATED = {"relu": "reglu", "gelu": "geglu_tanh", "gelu_new": "geglu_tanh", "silu": "swiglu"}
FORWARDS = {**PLAIN, **{f"gated-{key}": name for key, name in GATED.items()}}
"""By the key `feed_forward_proj`. "gated-gelu" means the tanh form."""
HEAD, EMBEDDING = "lm_head.weight", "shared.weight"

_HALVES = {"encoder": ("SelfAttention",), "decoder": ("SelfAttention", "EncDecAttention")}
_OURS = {"SelfAttention": "self", "EncDecAttention": "cross"}
_LINEAR = (("q", "w_query"), ("k", "w_key"), ("v", "w_value"), ("o", "out"))


def _stack_names(stack: str) -> list[Name]:
    """Returns the `Name`s (tensor name in files, parameter path in attnlab) of all layers of T5's
    stack "encoder" or "decoder", its relative positions and its norms, with `{i}` for the number of
    a layer.
    """
    lines = list[Name]()
    ours, forward = f"{stack}_{{i}}", f"{stack}_{{i}}/feed_forward"
    for place, half in enumerate(_HALVES[stack]):
        name, tensor = _OURS[half], f"{stack}.block.{{i}}.layer.{place}"
        for part, path in _LINEAR:
            kernel = f"{ours}/{name}_attention/{path}/kernel"
            lines.append(Name(f"{tensor}.{half}.{part}.weight", kernel, transposed=True))
        if name == "self":
            table = f"{stack}.block.0.layer.0.{half}.relative_attention_bias.weight"
            lines.append(Name(table, f"{stack}_positions/table"))
        around = f"{ours}/around_{name}/normalisation/scale"
        lines.append(Name(f"{tensor}.layer_norm.weight", around))
    tensor = f"{stack}.block.{{i}}.layer.{len(_HALVES[stack])}"
    inner = (("wi_0", "gate"), ("wi_1", "inner"), ("wi", "inner"), ("wo", "outer"))
    for part, path in inner:
        required = f"{forward}/gate/kernel" if part.startswith("wi_") else ""
        name = f"{tensor}.DenseReluDense.{part}.weight"
        lines.append(Name(name, f"{forward}/{path}/kernel", transposed=True, required=required))
    around = f"{ours}/around_feed_forward/normalisation/scale"
    lines.append(Name(f"{tensor}.layer_norm.weight", around))
    return [*lines, Name(f"{stack}.final_layer_norm.weight", f"top_{stack}/scale")]


NAMES = Names(
    (
        Name(EMBEDDING, "embed_target/embedding"),
        *_stack_names("encoder"),
        *_stack_names("decoder"),
        Name(HEAD, "out/kernel", transposed=True),
    ),
    prefix="",
    dropped=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    tied=dict.fromkeys(
        (HEAD, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), EMBEDDING
    ),
)


_SCORES = {"name": "multihead", "bias": False, "score": {"name": "dot"}}
KEYS = {
    "width": Key("d_model", 512),
    "encoder_attention.head_width": Key("d_kv", 64),
    "hidden": Key("d_ff", 2048),
    "layers": Key("num_layers", 6),
    "decoder_layers": Key("num_decoder_layers", 6),
    "encoder_attention.heads": Key("num_heads", 8),
    "encoder_attention.positions.buckets": Key("relative_attention_num_buckets", 32),
    "encoder_attention.positions.max_distance": Key("relative_attention_max_distance", 128),
    "dropout": Key("dropout_rate", 0.1),
    "normalisation.epsilon": Key("layer_norm_epsilon", 1e-6),
    "feed_forward.name": Key("feed_forward_proj", "relu", FORWARDS),
    "name": "transformer",
    "norm": "pre",
    "normalisation.name": "rms_norm",
    "feed_forward.bias": False,
    "positions.name": "none",
    "scaled_embedding": False,
    "share_positions": True,
    "encoder_attention.positions.name": "t5",
}


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of T5, describes; whether the output matrix is tied is read from the tensors in its folder,
    without a folder from `tie_word_embeddings`; raises `UserError` for settings that attnlab does
    not compute.
    """
    file.only(is_encoder_decoder=True)
    scaled = file.flag("scale_decoder_outputs", file.flag("tie_word_embeddings", True))
    untied = file.differ(HEAD, EMBEDDING)
    if untied is None:
        untied = not file.flag("tie_word_embeddings", True)
    node = file.system(KEYS)
    attention = {**node["encoder_attention"], **_SCORES, "dropout": node["dropout"]}
    return {
        **node,
        "decoder_layers": file.count("num_decoder_layers", node["layers"]),
        "encoder_attention": attention,
        "decoder_attention": attention,
        "cross_attention": {name: attention[name] for name in attention if name != "positions"},
        "share": "input" if untied else "all",
        "scaled_output": scaled,
    }


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of T5 for a complete config node `system`; `kind` is
    not used; raises `UserError` without multihead attention with T5 positions in the encoder.
    Settings that it cannot express are found by reading it back.
    """
    attention = system["encoder_attention"]
    if attention["name"] != "multihead" or attention["positions"]["name"] != "t5":
        raise UserError("it has multihead attention with the positions t5")
    content = content_of(KEYS, system)
    content["d_kv"] = content["d_kv"] or system["width"] // attention["heads"]
    content["num_decoder_layers"] = content["num_decoder_layers"] or system["layers"]
    if system["feed_forward"]["name"] == "geglu_tanh":
        content["feed_forward_proj"] = "gated-gelu"  # as T5 1.1 says it
    return {
        "model_type": "t5",
        "is_encoder_decoder": True,
        **content,
        "tie_word_embeddings": system["share"] == "all",
        "scale_decoder_outputs": system["scaled_output"],
    }


def run(file: ForeignConfig) -> dict[str, Any]:
    """Returns task, data, batch and decoding for the run config of a T5; see `tuned`."""
    return tuned(512)


def tuned(longest: int) -> dict[str, Any]:
    """Returns the nodes "task", "data", "batch" and "decoding" of a run config that tunes an
    encoder-decoder whose positions reach `longest` tokens.
    """
    length = max(2, min(128, longest // 2))
    return {
        "task": "text_to_text",
        "data": "none",
        "batch": {"size": 16, "max_length": length, "buckets": (max(1, length // 2), length)},
        "decoding": {"max_ratio": 1.0, "max_extra": min(50, longest - length)},
    }
