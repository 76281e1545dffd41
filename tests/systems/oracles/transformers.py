"""Transformers of texts: encoder-decoder, decoder alone, and BERT and its relatives."""

from math import erf

import numpy as np

from tests.attention.oracles import part
from tests.layers.oracles import feed_forward
from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_row, of_each_token


@of_each_row
def transformer(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> np.ndarray:
    """Vaswani et al. 2017: `settings` has "norm" (the placement), "share", "layers" and the mechanisms.

    And where they are not the paper's "normalisation" and "feed_forward" by name,
    "scaled_embedding", "decoder_layers", "scaled_output" and "leaking". Positions that all layers
    of a stack share, tables of positions, norms of embeddings and biases count where there are
    parameters of them.
    """
    target_table = params["embed_target"]["embedding"]
    share, source_table = settings.get("share", "all"), target_table
    if share in ("output", "none"):
        source_table = params["embed_source"]["embedding"]
    final = params["out"]["kernel"] if share in ("input", "none") else target_table.T
    if settings.get("scaled_output"):
        final = final / np.sqrt(target_table.shape[1])
    final_bias = params.get("out", {}).get("bias", 0.0)
    forward = part(settings, "feed_forward", "relu")[0]

    def layer(stack: str, number: int, x: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
        own, of = params.get(f"{stack}_{number}", {}), parts.in_layer(settings, number)
        shared = {"positions": params.get(f"{stack}_positions"), **own.get("self_attention", {})}
        causal = memory is not None and not settings.get("leaking")
        seen = np.tri(len(x), dtype=bool) if causal else None
        slots = f"{stack}_attention", "cross_attention", "feed_forward"
        functions = {
            "self": lambda x: parts.looked(of, slots[0], shared, x, mask=seen, causal=causal),
            "cross": lambda x: parts.looked(of, slots[1], own["cross_attention"], x, memory),
            "feed_forward": lambda x: feed_forward(forward, own.get("feed_forward", {}), x),
        }
        empty = parts.absent_parts(of, slots)
        absent = {name for name, slot in zip(functions, slots, strict=True) if slot in empty}
        absent |= {"cross"} if memory is None else set()
        return parts.placed(own, settings, x, functions, absent)

    def through(stack: str, x: np.ndarray, layers: int, memory: np.ndarray | None) -> np.ndarray:
        x = parts.normalised(params.get(f"embed_norm_{stack}"), settings, x)
        for number in range(layers):
            x = layer(stack, number, x, memory)
        return parts.normalised(params.get(f"top_{stack}"), settings, x)

    x = parts.embedded(source_table, settings, source, params.get("positions"), scaled=True)
    memory = through("encoder", x, settings["layers"], None)
    places = params.get("positions_decoder")
    y = parts.embedded(target_table, settings, target_in, places, scaled=True)
    layers = settings.get("decoder_layers") or settings["layers"]
    return through("decoder", y, layers, memory)[:, : len(final)] @ final + final_bias


@of_each_token
def decoder(params: Tree, settings: Settings, tokens: Vector) -> np.ndarray:
    """GPT-2 and Llama: `settings` are the system's; layers may differ."""
    table = params["embed"]["embedding"]
    final = table.T if settings.get("share", "output") == "output" else params["out"]["kernel"]
    x = parts.embedded(table, settings, tokens, params.get("positions"))
    logits = parts.blocks(params, settings, x, "gelu_tanh", causal=True)[:, : len(final)] @ final
    cap = settings.get("logit_cap", 0.0)
    return cap * np.tanh(logits / cap) if cap else logits


@of_each_token
def encoder(
    params: Tree, settings: Settings, tokens: Vector, types: Vector | int = 0
) -> np.ndarray:
    """Numbers of every token; `types` says which of the texts of its row a token belongs to."""
    states = _states(params, settings, tokens, types)
    if settings.get("head", "linear") == "linear":
        return affine(params["out"], states)
    inner = affine(params["out"]["inner"], states)
    gelu = np.array([[x / 2 * (1 + erf(x / 2**0.5)) for x in one] for one in inner])
    normed = parts.normalised(params["out"]["normalisation"], settings, gelu)
    return normed @ params["embed"]["embedding"].T + params["out"]["bias"]


@of_each_row
def encoder_classifier(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Logits of a text or a pair: a row of id 1, the first text, the second."""
    row = np.concatenate([[1], *texts])
    kinds = np.repeat([0, 1], [1 + len(texts[0]), len(row) - 1 - len(texts[0])])
    states = _states(params, settings, row, kinds)
    match settings.get("pooling", "mean"):
        case "mean":
            vector = states.mean(axis=0)
        case "max":
            vector = states.max(axis=0)
        case "first":
            vector = states[0]
        case "pooler":
            vector = np.tanh(affine(params["pooler"], states[0]))
    return affine(params["out"], vector)


_BERT: Settings = {"norm": "post", "head": "tied", "pooling": "pooler"}


def bert(params: Tree, settings: Settings, *read: np.ndarray) -> np.ndarray:
    """Logits of every token."""
    return encoder(params, {**_BERT, **settings}, *read)


def bert_classifier(params: Tree, settings: Settings, *texts: np.ndarray) -> np.ndarray:
    """Logits of texts or pairs."""
    return encoder_classifier(params, {**_BERT, **settings}, *texts)


def _states(params: Tree, settings: Settings, tokens: Vector, types: Vector | int) -> np.ndarray:
    """The states [T,d] of a text without padding."""
    places = params.get("positions")
    x = parts.embedded(params["embed"]["embedding"], settings, tokens, places)
    if "embed_types" in params:
        x = x + params["embed_types"]["embedding"][types]
    x = parts.normalised(params.get("embed_norm"), settings, x)
    return parts.blocks(params, settings, x, "gelu")
