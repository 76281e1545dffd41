"""Llama (Touvron et al. 2023) and its family in the files of `transformers`: Mistral, Qwen 2 and 3,
Gemma 1 to 3 (text). RoPE is in halves there, as the files' matrices already are.

    family     linear with a bias       what else is its own
    llama      none, or all four             scaled RoPE
    mistral    none                          a window in all layers
    qwen2      query, key, value             a window in some layers
    qwen3      none, or all four             QK norm, head width; a window in some layers
    gemma      none, or all four             norms by 1 + g, sqrt(d) embeddings, GeGLU
    gemma2     the same                      two norms around each function, soft caps, every other layer local, a score scale of its own
    gemma3     the same                      QK norm by 1 + g; local layers have a RoPE of their own

A key that is not there has the default of its family in `transformers`, which is not what null
means. A soft cap of scores is computed there for gemma2 alone, whatever the files of others say.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.errors import UserError
from attnlab.weights import rope
from attnlab.weights.foreign import ForeignConfig, layer_nodes
from attnlab.weights.names import Name, Names, matrix

ACTIVATIONS = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_new": "geglu_tanh",
    "gelu": "geglu",
    "relu": "reglu",
}
KINDS = {"full_attention": False, "sliding_attention": True}  # whether local
QKV = ("query", "key", "value")


@dataclasses.dataclass(frozen=True)
class Family:
    """What the models of one `model_type` have of their own.

    Attributes:
      architecture: the class of `transformers`.
      biased: the linear that have a bias whatever the config says; None where it says.
      qk_norm: whether queries and keys are normalised.
      gemma: norms by 1 + g, scaled embeddings, tied unless said otherwise.
      sandwich: two norms around each function.
      windows: which layers are local where `layer_types` is not given: "" none can be, "all",
        "late" (from max_window_layers on), "every" (of so many all but the last).
      key_heads: heads of keys where the key is not there; None for those of queries.
      caps: soft caps of scores and of logits where the keys are not there; None where
        `transformers` has none.
    """

    architecture: str
    biased: tuple[str, ...] | None = None
    qk_norm: bool = False
    gemma: bool = False
    sandwich: bool = False
    windows: str = ""
    key_heads: int | None = None
    caps: tuple[float | None, float | None] = (None, None)


FAMILIES = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM", biased=(), windows="all", key_heads=8),
    "qwen2": Family("Qwen2ForCausalLM", biased=QKV, windows="late", key_heads=32),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True, windows="late", key_heads=32),
    "gemma": Family("GemmaForCausalLM", gemma=True, key_heads=16),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        gemma=True,
        sandwich=True,
        windows="every",
        key_heads=4,
        caps=(50.0, 30.0),
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        qk_norm=True,
        gemma=True,
        sandwich=True,
        windows="every",
        key_heads=4,
        caps=(None, 0.0),
    ),
}
ARCHITECTURES = {kind: family.architecture for kind, family in FAMILIES.items()}

_H, _L = "model.layers.{i}", "layer_{i}"


def names(kind: str) -> Names:
    """Returns the table `Names` (tensor names in files, parameter paths in attnlab) of a model type
    of the Llama family, such as "llama" or "gemma2".
    """
    attention = (("q", "w_query"), ("k", "w_key"), ("v", "w_value"), ("o", "out"))
    inside, norm_name = "around_feed_forward/normalisation", "post_attention_layernorm"
    around = [
        ("input_layernorm", "around_attention/normalisation"),
        (norm_name, inside),
        ("pre_feedforward_layernorm", inside),
        ("post_feedforward_layernorm", "around_feed_forward/normalisation_out"),
    ]
    if FAMILIES[kind].sandwich:
        around[1] = (norm_name, "around_attention/normalisation_out")
    else:
        del around[2:]
    linear = [
        *((f"self_attn.{tensor}_proj", f"attention/{path}") for tensor, path in attention),
        *((f"mlp.{tensor}_proj", f"feed_forward/{path}") for tensor, path in
          (("gate", "gate"), ("up", "inner"), ("down", "outer"))),
    ]  # fmt: skip
    scores = ("attention/score", "attention/score/score")  # the second where scores are capped
    return Names(
        (
            Name("model.embed_tokens.weight", "embed/embedding"),
            *(line for tensor, path in linear for line in matrix(f"{_H}.{tensor}", f"{_L}/{path}")),
            *(
                Name(f"{_H}.self_attn.{tensor}_norm.weight", f"{_L}/{score}/{path}_norm/scale")
                for score in scores
                for tensor, path in (("q", "query"), ("k", "key"))
            ),
            *(Name(f"{_H}.{tensor}.weight", f"{_L}/{path}/scale") for tensor, path in around),
            Name("model.norm.weight", "top/scale"),
            Name("lm_head.weight", "out/kernel", transposed=True),
        ),
        prefix="model.",
        dropped=(r".*\.rotary_emb\.inv_freq",),
        tied={"lm_head.weight": "model.embed_tokens.weight"},
    )


def system(file: ForeignConfig) -> dict[str, Any]:
    """Returns the config node `system` of attnlab that a `ForeignConfig`, the parsed `config.json`
    of the Llama family, describes, with windows and rotary positions by layer; raises `UserError`
    for settings that attnlab does not compute.
    """
    kind = file.text("model_type")
    family = FAMILIES[kind]
    file.only(use_bidirectional_attention=False, pretraining_tp=1)
    epsilon = file.number("rms_norm_eps", 1e-6)
    layers, window = file.count("num_hidden_layers"), _window(file, family)
    local = _local_layers(file, family, layers) if window else (False,) * layers
    full = _attention(file, family, epsilon, rope.read(file, "full_attention"))
    node = {
        "name": "decoder",
        "width": file.count("hidden_size"),
        "layers": layers,
        "hidden": file.count("intermediate_size"),
        "norm": "sandwich" if family.sandwich else "pre",
        "normalisation": {
            "name": "rms_norm_plus_one" if family.gemma else "rms_norm",
            "epsilon": epsilon,
        },
        "feed_forward": {"name": _activation(file, family), "bias": file.flag("mlp_bias", False)},
        "positions": {"name": "none"},
        "scaled_embedding": family.gemma,
        "attention": full,
        "dropout": 0.0,
        "logit_cap": _cap(file, "final_logit_softcapping", family.caps[1]),
        "share": "output" if file.flag("tie_word_embeddings", family.gemma) else "none",
    }
    near = {"name": "window", "width": window}
    local_positions = rope.read(file, "sliding_attention")
    if all(local):
        attention = _attention(file, family, epsilon, local_positions)
        return {**node, "attention": attention, "visibility": near}
    if any(local):
        other = _attention(file, family, epsilon, local_positions)
        node["visibility"] = _by_layer({"name": "full"}, near, local)
        if local_positions != full["positions"]:
            node["attention"] = _by_layer(full, other, local)
    return node


def _by_layer(full: Any, other: Any, local: Sequence[bool]) -> dict[str, Any]:
    """Returns the node that has `other` in the layers that are `local`, and `full` in the others."""
    pattern = tuple("other" if is_local else "one" for is_local in local)
    return {"name": "by_layer", "one": full, "other": other, "pattern": pattern}


def config(system: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the content of a `config.json` of the model type `kind` of the Llama family for a
    complete config node `system`; raises `UserError` without multihead attention and RoPE. Settings
    that it cannot express are found by reading it back.
    """
    family, nodes = FAMILIES[kind], layer_nodes(system, "attention")
    if any(node["name"] != "multihead" or node["positions"]["name"] != "rope" for node in nodes):
        raise UserError("it has multihead attention with rope positions")
    local = [node["name"] == "window" for node in layer_nodes(system, "visibility")]
    attention = nodes[local.index(False) if False in local else 0]
    local_positions = nodes[local.index(True) if True in local else 0]["positions"]
    heads, epsilon = attention["heads"], system["normalisation"].get("epsilon", 1e-6)
    capped = attention["score"]["name"] == "soft_capped"
    score = attention["score"]["score"] if capped else attention["score"]
    activations = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
    activation = activations.get(system["feed_forward"]["name"], "silu")
    content: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": system["width"],
        "intermediate_size": system["hidden"],
        "num_hidden_layers": system["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": attention["key_heads"] or heads,
        "head_dim": attention["head_width"] or system["width"] // heads,
        "rms_norm_eps": epsilon,
        "attention_dropout": attention["dropout"],
        "tie_word_embeddings": system["share"] == "output",
        "hidden_activation" if family.gemma else "hidden_act": activation,
        **rope.keys_of(attention["positions"], local_positions, kind),
        **_window_keys(system, family, local),
    }
    if family.biased is None:
        content["attention_bias"] = bool(attention["bias"])
    if kind == "llama":
        content["mlp_bias"] = system["feed_forward"].get("bias", False)
    if family.sandwich:
        content |= {
            "query_pre_attn_scalar": _int_if_whole(score.get("over") or content["head_dim"]),
            "attn_logit_softcapping": attention["score"]["cap"] if capped else None,
            "final_logit_softcapping": system["logit_cap"] or None,
        }
    return content


def _attention(
    file: ForeignConfig, family: Family, epsilon: float, positions: dict[str, Any]
) -> dict[str, Any]:
    """Returns the config node of multihead attention with the node `positions`; its heads, biases,
    score (QK norm with `epsilon`, scale, soft cap) and dropout are read from the config `file` of
    this family.
    """
    width, heads = file.count("hidden_size"), file.count("num_attention_heads")
    name = "qk_rmsnorm" + "_plus_one" * family.gemma if family.qk_norm else "scaled_dot"
    score: dict[str, Any] = {"name": name}
    if family.qk_norm:
        score["epsilon"] = epsilon
    if family.sandwich:
        score["over"] = file.number("query_pre_attn_scalar", 256)
    if cap := _cap(file, "attn_logit_softcapping", family.caps[0]):
        score = {"name": "soft_capped", "cap": cap, "score": score}
    biased: Any = file.flag("attention_bias", False) if family.biased is None else family.biased
    # what transformers takes where the config does not say it
    usual = 256 if family.gemma else 128 if file.text("model_type") == "qwen3" else width // heads
    return {
        "name": "multihead",
        "heads": heads,
        "key_heads": file.count("num_key_value_heads", heads, absent=family.key_heads),
        "head_width": file.count("head_dim", usual),
        "bias": biased or False,
        "score": score,
        "positions": positions,
        "dropout": file.number("attention_dropout", 0.0),
    }


def _cap(file: ForeignConfig, key: str, absent: float | None) -> float:
    """Returns the soft cap at a key of the config, 0 for none, `absent` where the key is missing;
    raises `UserError` if `absent` is None and the key is given, since `transformers` ignores it.
    """
    if absent is None and file.content.get(key) is not None:
        raise file.error(key, "null, for transformers computes no such cap in this type of model")
    return file.number(key, 0.0, absent)


def _activation(file: ForeignConfig, family: Family) -> str:
    """Returns the name of the feed-forward layer with the activation that a config names."""
    if family.gemma:  # `hidden_act` of old files means the same; transformers takes the tanh form
        return file.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh")
    return file.choice("hidden_act", ACTIVATIONS, "silu")


def _window(file: ForeignConfig, family: Family) -> int:
    """Returns how many keys a query of a local layer sees, itself among them, from the config's
    `sliding_window` (4096 if that key is missing); 0 where no layer is local.
    """
    if not family.windows or (
        family.windows == "late" and not file.flag("use_sliding_window", False)
    ):
        return 0
    return file.count("sliding_window", 0, least=0, absent=4096)


def _local_layers(file: ForeignConfig, family: Family, layers: int) -> tuple[bool, ...]:
    """Returns for each layer whether it is local (its attention has a window), by the config's
    `layer_types`, else by the rule of its family; raises `UserError` for an unfit `layer_types`.
    """
    kinds = file.content.get("layer_types")
    if kinds is not None:
        listed = isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
        if not listed or len(kinds) != layers or not set(kinds) <= set(KINDS):
            raise file.error("layer_types", f"{layers} of {', '.join(KINDS)}")
        return tuple(KINDS[kind] for kind in kinds)
    if family.windows == "all":
        return (True,) * layers
    if family.windows == "late":
        first = file.count("max_window_layers", 28, least=0)
        return tuple(number >= first for number in range(layers))
    period = file.count("sliding_window_pattern", 6 if family.qk_norm else 2)
    return tuple(bool((number + 1) % period) for number in range(layers))


def _window_keys(system: Mapping[str, Any], family: Family, local: list[bool]) -> dict[str, Any]:
    """Returns the keys of a config of the Llama family that say which layers are local, True in
    `local`, and give the width of their window; {} for a family without windows.
    """
    if not family.windows:
        return {}
    visibilities = layer_nodes(system, "visibility")
    width = visibilities[local.index(True)]["width"] if any(local) else None
    if family.windows == "all":
        return {"sliding_window": width if all(local) else None}
    keys: dict[str, Any] = {"sliding_window": width}
    if family.windows == "late":
        keys |= {
            "use_sliding_window": any(local),
            "max_window_layers": local.index(True) if any(local) else system["layers"],
        }
    kinds = {ours: kind for kind, ours in KINDS.items()}
    keys["layer_types"] = [kinds[is_local] for is_local in local]
    return keys


def _int_if_whole(number: float) -> float | int:
    """The number, an int where it is whole."""
    return int(number) if float(number).is_integer() else number
