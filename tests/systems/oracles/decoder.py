"""The decoder-only Transformer."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, blocks, embedded


def decoder(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """GPT-2 and Llama: `settings` are the system's; layers may differ."""
    table = params["embed"]["embedding"]
    final = table.T if settings.get("share", "output") == "output" else params["out"]["kernel"]
    logits = np.zeros((*tokens.shape, len(table)))
    for b in range(len(tokens)):
        read = tokens[b][tokens[b] != 0]
        if len(read):
            x = embedded(params, settings, read)
            states = blocks(params, settings, x, "gelu_tanh", causal=True)
            logits[b, : len(read)] = states[:, : len(final)] @ final
    cap = settings.get("logit_cap", 0.0)
    return cap * np.tanh(logits / cap) if cap else logits
