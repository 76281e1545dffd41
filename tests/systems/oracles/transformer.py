"""The Transformer."""

from typing import Any

import numpy as np

from tests.attention.oracles import part
from tests.attention.position_oracles import POSITIONS
from tests.layers.oracles import feed_forward
from tests.systems.oracles.parts import Tree, heads_of, in_layer, normalised, placed


def transformer(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Vaswani et al. 2017: `settings` has "norm" (the placement), "share", "layers" and "heads".

    And where they are not the paper's "normalisation" and "feed_forward" by name,
    "scaled_embedding", "decoder_layers", "scaled_output", "leaking", and "t5": the (buckets, largest distance)
    of relative biases that all layers of a stack share. Tables of positions, norms of embeddings
    and biases count where there are parameters of them.
    """
    target_table = params["embed_target"]["embedding"]
    own_source, own_matrix = {
        "all": (False, False),
        "input": (False, True),
        "output": (True, False),
        "none": (True, True),
    }[settings.get("share", "all")]
    source_table = params["embed_source"]["embedding"] if own_source else target_table
    final = params["out"]["kernel"] if own_matrix else target_table.T
    if settings.get("scaled_output"):
        final = final / np.sqrt(target_table.shape[1])
    final_bias = params.get("out", {}).get("bias", 0.0)
    heads = settings["heads"]
    forward = part(settings, "feed_forward", "relu")[0]
    logits, divided = np.zeros((*target_in.shape, final.shape[1])), "t5" not in settings

    def layer(stack: str, number: int, x: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
        own = params.get(f"{stack}_{number}", {})
        shared = params.get(f"{stack}_positions")
        bias = _distances(shared, settings, len(x), memory is not None)
        masked = memory is not None and not settings.get("leaking")
        functions = {
            "self": lambda x: heads_of(
                own["self_attention"], heads, x, x, x, masked, bias, divided
            ),
            "cross": lambda x: heads_of(
                own["cross_attention"], heads, x, memory, memory, divided=divided
            ),
            "feed_forward": lambda x: feed_forward(forward, own.get("feed_forward", {}), x),
        }
        of = in_layer(settings, number)
        slots = {"self": f"{stack}_attention", "cross": "cross_attention"}
        for name, slot in slots.items():
            if part(of, slot, "")[0] == "none" or (memory is None and name == "cross"):
                del functions[name]
        if forward == "none":
            del functions["feed_forward"]
        return placed(own, settings, x, functions, "layer_norm")

    def top(stack: str, x: np.ndarray) -> np.ndarray:
        on_top = params.get(f"top_{stack}")
        return x if on_top is None else normalised(on_top, settings, x, "layer_norm")

    def embedded(stack: str, table: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        places = params.get("positions_decoder" if stack == "decoder" else "positions")
        x = _embedded(table, tokens, settings, places)
        norm_e = params.get(f"embed_norm_{stack}")
        return x if norm_e is None else normalised(norm_e, settings, x, "layer_norm")

    for b in range(len(source)):
        x = embedded("encoder", source_table, source[b][source[b] != 0])
        for number in range(settings["layers"]):
            x = layer("encoder", number, x, None)
        memory = top("encoder", x)
        y = embedded("decoder", target_table, target_in[b])
        for number in range(settings.get("decoder_layers") or settings["layers"]):
            y = layer("decoder", number, y, memory)
        logits[b] = top("decoder", y)[:, : len(final)] @ final + final_bias
    return logits


def _embedded(
    table: np.ndarray, tokens: np.ndarray, settings: dict[str, Any], places: Tree | None
) -> np.ndarray:
    """sqrt(d) E[token] + PE[position], with PE[p, 2i] = sin(p / 10000^(2i/d)) and PE[p, 2i+1] = cos
    of the same; `places`: a table instead, whose first rows may be unused.
    """
    width = table.shape[1]
    apart = settings.get("position_width", 0)
    rows = []
    for position, token in enumerate(tokens):
        row = (np.sqrt(width) if settings.get("scaled_embedding", True) else 1.0) * table[token]
        added = np.zeros(apart or width)
        if places is not None:
            added = places["table"][position + settings["positions"]["unused"]]
        for column in range(len(added)) if "t5" not in settings and places is None else ():
            angle = position / 10000.0 ** (2 * (column // 2) / len(added))
            added[column] = np.sin(angle) if column % 2 == 0 else np.cos(angle)
        rows.append(np.concatenate([row, added]) if apart else row + added)
    return np.array(rows)


def _distances(
    params: Tree | None, settings: dict[str, Any], length: int, causal: bool
) -> np.ndarray | float:
    """T5's bias [H,Tq,Tk] from one table for a stack; 0 without."""
    if params is None:
        return 0.0
    buckets, largest = settings["t5"]
    scheme = POSITIONS["t5"](
        params, {"buckets": buckets, "max_distance": largest}, settings["heads"], 1, causal
    )
    shape = (settings["heads"], length, length)
    nothing = np.zeros(1)
    biases = [scheme.bias(h, nothing, nothing, i, j) for h, i, j in np.ndindex(shape)]
    return np.array(biases).reshape(shape)
