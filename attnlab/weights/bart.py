"""BART (Lewis et al. 2020) in the files of `transformers`: norms behind sums and behind the embeddings,
a table of positions for each stack whose first two rows nothing reads, biases everywhere, and one
more for each id of the vocabulary, `final_logits_bias`, which is no parameter there but is here.

Source: M. Lewis et al., "BART: Denoising Sequence-to-Sequence Pre-training for Natural Language
Generation, Translation, and Comprehension", ACL 2020.
"""

from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.weights.foreign import ACTIVATIONS, ForeignConfig, Key, content_of
from attnlab.weights.names import Name, Names, matrix, norm
from attnlab.weights.t5 import tuned

ARCHITECTURES = {"bart": "BartForConditionalGeneration"}
SYSTEMS = ("transformer",)
UNUSED = 2  # rows of a table of positions before the first
EMBEDDING = "model.shared.weight"

_LINEAR = (("k", "w_key"), ("v", "w_value"), ("q", "w_query"), ("out", "out"))
_SLOTS = {"encoder": ("self",), "decoder": ("self", "cross")}
_MODULES = {"self": "self_attn", "cross": "encoder_attn"}


def _stack_names(stack: str) -> list[Name]:
    """Returns the `Name`s (tensor name in files, parameter path in attnlab) of all layers of BART's
    stack "encoder" or "decoder", its positions and its norms, with `{i}` for the number of a layer.
    """
    tensor, ours = f"model.{stack}.layers.{{i}}", f"{stack}_{{i}}"
    places = "positions_decoder" if stack == "decoder" else "positions"
    linear, norms = [], [(f"model.{stack}.layernorm_embedding", f"embed_norm_{stack}")]
    for slot in _SLOTS[stack]:
        name = f"{tensor}.{_MODULES[slot]}"
        for part, path in _LINEAR:
            linear.append((f"{name}.{part}_proj", f"{ours}/{slot}_attention/{path}"))
        norms.append((f"{name}_layer_norm", f"{ours}/around_{slot}/normalisation"))
    for part, path in (("fc1", "inner"), ("fc2", "outer")):
        linear.append((f"{tensor}.{part}", f"{ours}/feed_forward/{path}"))
    norms.append((f"{tensor}.final_layer_norm", f"{ours}/around_feed_forward/normalisation"))
    return [
        Name(f"model.{stack}.embed_positions.weight", f"{places}/table"),
        *(line for part, path in linear for line in matrix(part, path)),
        *(line for part, path in norms for line in norm(part, path)),
    ]


NAMES = Names(
    (
        Name("final_logits_bias", "out/bias", row=True),
        Name(EMBEDDING, "embed_target/embedding"),
        *_stack_names("encoder"),
        *_stack_names("decoder"),
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


KEYS = {
    "width": Key("d_model", 1024),
    "layers": Key("encoder_layers", 12),
    "decoder_layers": Key("decoder_layers", 12),
    "hidden": Key("encoder_ffn_dim", 4096),
    "encoder_attention.heads": Key("encoder_attention_heads", 16),
    "decoder_attention.heads": Key("decoder_attention_heads", 16),
    "cross_attention.heads": Key("decoder_attention_heads", 16),
    "positions.length": Key("max_position_embeddings", 1024),
    "feed_forward.name": Key("activation_function", "gelu", ACTIVATIONS),
    "scaled_embedding": Key("scale_embedding", False),
    "encoder_attention.dropout": Key("attention_dropout", 0.0),
    "hidden_dropout": Key("activation_dropout", 0.0),
    "dropout": Key("dropout", 0.1),
    "name": "transformer",
    "norm": "post",
    "normalisation.name": "layer_norm",
    "normalisation.epsilon": 1e-5,
    "positions.name": "learned",
    "positions.unused": UNUSED,
    "own_positions": True,
    "normalised_embedding": True,
    "share": "all",
    "output_bias": True,
}


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of BART, describes; raises `UserError` for settings that attnlab does not compute.
    """
    node = file.system(KEYS)
    if (other := file.count("decoder_ffn_dim", 4096)) != node["hidden"]:
        raise UserError(
            f"{file.where}: encoder_ffn_dim={node['hidden']} and decoder_ffn_dim={other}; here both"
            " stacks have layers of one size"
        )
    file.only(tie_word_embeddings=True, is_encoder_decoder=True)
    file.only(encoder_layerdrop=0.0, decoder_layerdrop=0.0, force_bos_token_to_be_generated=False)
    attention = {"name": "multihead", "bias": True, "dropout": node["encoder_attention"]["dropout"]}
    slots = ("encoder_attention", "decoder_attention", "cross_attention")
    return {**node, **{slot: {**node[slot], **attention} for slot in slots}}


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of BART for a complete config node `system`; `kind` is
    not used; raises `UserError` without learned positions. Settings that it cannot express are
    found by reading it back.
    """
    depth = system["decoder_layers"] or system["layers"]
    return {
        "model_type": "bart",
        "is_encoder_decoder": True,
        **content_of(KEYS, {**system, "decoder_layers": depth}),
        "decoder_ffn_dim": system["hidden"],
    }


def run(file: ForeignConfig) -> dict[str, Any]:
    """Returns task, data, batch and decoding for the run config of a BART; see `tuned`."""
    return tuned(file.count("max_position_embeddings", 1024))
