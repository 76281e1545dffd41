"""BART (Lewis et al. 2020) in the files of `transformers`: norms behind sums and behind the embeddings,
a table of positions for each stack whose first two rows nothing reads, biases everywhere, and one
more for each id of the vocabulary, `final_logits_bias`, which is no parameter there but is here.

Source: M. Lewis et al., "BART: Denoising Sequence-to-Sequence Pre-training for Natural Language
Generation, Translation, and Comprehension", ACL 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.foreign import ForeignConfig
from attnlab.weights.gpt2 import ACTIVATIONS
from attnlab.weights.names import Name, Names, matrix, norm
from attnlab.weights.t5 import tuned

ARCHITECTURES = {"bart": "BartForConditionalGeneration"}
SYSTEMS = ("transformer",)
UNUSED = 2  # rows of a table of positions before the first
EMBEDDING = "model.shared.weight"

_LINEAR = (("k", "w_key"), ("v", "w_value"), ("q", "w_query"), ("out", "out"))
_LOOKS = {"encoder": ("self",), "decoder": ("self", "cross")}
_THEIRS = {"self": "self_attn", "cross": "encoder_attn"}


def _of_stack(stack: str) -> list[Name]:
    """The lines of a stack."""
    theirs, ours = f"model.{stack}.layers.{{i}}", f"{stack}_{{i}}"
    places = "positions_decoder" if stack == "decoder" else "positions"
    linear, norms = [], [(f"model.{stack}.layernorm_embedding", f"embed_norm_{stack}")]
    for look in _LOOKS[stack]:
        name = f"{theirs}.{_THEIRS[look]}"
        for part, path in _LINEAR:
            linear.append((f"{name}.{part}_proj", f"{ours}/{look}_attention/{path}"))
        norms.append((f"{name}_layer_norm", f"{ours}/around_{look}/normalisation"))
    for part, path in (("fc1", "inner"), ("fc2", "outer")):
        linear.append((f"{theirs}.{part}", f"{ours}/feed_forward/{path}"))
    norms.append((f"{theirs}.final_layer_norm", f"{ours}/around_feed_forward/normalisation"))
    return [
        Name(f"model.{stack}.embed_positions.weight", f"{places}/table"),
        *(line for part, path in linear for line in matrix(part, path)),
        *(line for part, path in norms for line in norm(part, path)),
    ]


NAMES = Names(
    (
        Name("final_logits_bias", "out/bias", row=True),
        Name(EMBEDDING, "embed_target/embedding"),
        *_of_stack("encoder"),
        *_of_stack("decoder"),
    ),
    prefix="model.",
    tied=dict.fromkeys(
        (
            "lm_head.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        ),
        EMBEDDING,
    ),
)


def system(file: ForeignConfig) -> dict[str, Any]:
    """The system of a config, and of its tensors where there are some."""
    layers, hidden = file.count("encoder_layers", 12), file.count("encoder_ffn_dim", 4096)
    if (other := file.count("decoder_ffn_dim", 4096)) != hidden:
        raise UserError(
            f"{file.where}: encoder_ffn_dim={hidden} and decoder_ffn_dim={other}; here both stacks"
            " have layers of one size"
        )
    file.only(tie_word_embeddings=True, is_encoder_decoder=True)
    file.only(encoder_layerdrop=0.0, decoder_layerdrop=0.0, force_bos_token_to_be_generated=False)
    dropout = file.number("attention_dropout", 0.0)

    def looks(stack: str) -> dict[str, Any]:
        heads = file.count(f"{stack}_attention_heads", 16)
        return {"name": "multihead", "heads": heads, "bias": True, "dropout": dropout}

    length = file.count("max_position_embeddings", 1024)
    return {
        "name": "transformer",
        "width": file.count("d_model", 1024),
        "layers": layers,
        "decoder_layers": file.count("decoder_layers", 12),
        "hidden": hidden,
        "norm": "post",
        "normalisation": {"name": "layer_norm", "epsilon": 1e-5},
        "feed_forward": {"name": file.one_of("activation_function", ACTIVATIONS, "gelu")},
        "positions": {"name": "learned", "length": length, "unused": UNUSED},
        "own_positions": True,
        "scaled_embedding": file.flag("scale_embedding", False),
        "normalised_embedding": True,
        "encoder_attention": looks("encoder"),
        "decoder_attention": looks("decoder"),
        "cross_attention": looks("decoder"),
        "dropout": file.number("dropout", 0.1),
        "hidden_dropout": file.number("activation_dropout", 0.0),
        "share": "all",
        "output_bias": True,
    }


def config(of: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The config of a system, whole; what it cannot say, reading it back shows."""
    if of["positions"]["name"] != "learned":
        raise UserError("it has learned positions")
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "model_type": "bart",
        "is_encoder_decoder": True,
        "d_model": of["width"],
        "encoder_layers": of["layers"],
        "decoder_layers": of["decoder_layers"] or of["layers"],
        "encoder_ffn_dim": of["hidden"],
        "decoder_ffn_dim": of["hidden"],
        "encoder_attention_heads": of["encoder_attention"].get("heads", 1),
        "decoder_attention_heads": of["decoder_attention"].get("heads", 1),
        "max_position_embeddings": of["positions"]["length"],
        "activation_function": activations.get(of["feed_forward"]["name"], "gelu"),
        "scale_embedding": of["scaled_embedding"],
        "attention_dropout": of["encoder_attention"].get("dropout", 0.0),
        "activation_dropout": of["hidden_dropout"],
        "dropout": of["dropout"],
    }


def run(file: ForeignConfig) -> dict[str, Any]:
    """Of a config of a run, what it says beside the system."""
    return tuned(file.count("max_position_embeddings", 1024))
