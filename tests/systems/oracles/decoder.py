"""The decoder-only Transformer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.attention.oracles import ORACLES as MECHANISMS
from tests.attention.oracles import part
from tests.layers.oracles import feed_forward
from tests.systems.oracles.parts import Tree, in_layer, normalised, placed


def decoder(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """GPT-2 and Llama: `settings` are the system's; layers may
    differ.
    """
    table = params["embed"]["embedding"]
    final = table.T if settings.get("share", "output") == "output" else params["out"]["kernel"]
    logits = np.zeros((*tokens.shape, len(table)))
    for b in range(len(tokens)):
        read = tokens[b][tokens[b] != 0]
        if len(read):
            states = _hidden(params, settings, table[read])
            logits[b, : len(read)] = states[:, : len(final)] @ final
    cap = settings.get("logit_cap", 0.0)
    return cap * np.tanh(logits / cap) if cap else logits


def _hidden(params: Tree, settings: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Embeddings [T,d] of a text to what the head gets [T,d]."""
    x = x * np.sqrt(x.shape[1]) if settings.get("scaled_embedding") else x
    if "positions" in params:
        places = params["positions"]["table"][: len(x)]
        concatenated = settings.get("position_width", 0)
        x = np.concatenate([x, places], axis=1) if concatenated else x + places
    for number in range(settings["layers"]):
        own = params.get(f"layer_{number}", {})
        mask = np.tril(np.ones((len(x), len(x)), bool))
        rule, fields = part(in_layer(settings, number), "visibility", "full")
        if rule == "window":
            mask = np.triu(mask, 1 - fields["width"])
        name, fields = part(in_layer(settings, number), "attention", "multihead")

        def attend(y: np.ndarray) -> np.ndarray:
            found = MECHANISMS[name](own["attention"], fields, y[None], y[None], mask[None], True)  # noqa: B023
            return found[0][0]

        forward = part(settings, "feed_forward", "gelu_tanh")[0]
        functions = {
            "attention": attend,
            "feed_forward": lambda y: feed_forward(forward, own["feed_forward"], y),  # noqa: B023
        }
        for what, chosen in (("attention", name), ("feed_forward", forward)):
            if chosen == "none":
                del functions[what]
        x = placed(own, settings, x, functions, "layer_norm")
    return normalised(params["top"], settings, x, "layer_norm") if "top" in params else x
