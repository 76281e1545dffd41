"""The Transformer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, softmax


def transformer(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Vaswani et al. 2017: `settings` has "norm" ("pre" or "post"), "share", "layers" and
    "heads".
    """
    target_table = params["embed_target"]["embedding"]
    source_table = (
        target_table if settings["share"] == "all" else params["embed_source"]["embedding"]
    )
    final = params["out"]["kernel"] if settings["share"] == "none" else target_table.T
    pre, heads = settings["norm"] == "pre", settings["heads"]
    logits = np.zeros((*target_in.shape, final.shape[1]))
    for b in range(len(source)):
        x = _embedded(source_table, source[b][source[b] != 0])
        for number in range(settings["layers"]):
            layer = params[f"encoder_{number}"]
            x = _around(
                layer["around_self"],
                pre,
                x,
                lambda x, layer=layer: _heads(layer["self_attention"], heads, x, x),
            )
            x = _around(
                layer["around_feed_forward"],
                pre,
                x,
                lambda x, layer=layer: _feed_forward(layer["feed_forward"], x),
            )
        memory = _norm(params["top_encoder"], x) if pre else x
        y = _embedded(target_table, target_in[b])
        for number in range(settings["layers"]):
            layer = params[f"decoder_{number}"]
            y = _around(
                layer["around_self"],
                pre,
                y,
                lambda y, layer=layer: _heads(layer["self_attention"], heads, y, y, causal=True),
            )
            y = _around(
                layer["around_cross"],
                pre,
                y,
                lambda y, layer=layer: _heads(layer["cross_attention"], heads, y, memory),  # noqa: B023
            )
            y = _around(
                layer["around_feed_forward"],
                pre,
                y,
                lambda y, layer=layer: _feed_forward(layer["feed_forward"], y),
            )
        logits[b] = (_norm(params["top_decoder"], y) if pre else y) @ final
    return logits


def _embedded(table: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """sqrt(d) E[token] + PE[position], with PE[p, 2i] = sin(p / 10000^(2i/d)) and PE[p, 2i+1] = cos
    of the same.
    """
    width = table.shape[1]
    rows = []
    for position, token in enumerate(tokens):
        row = np.sqrt(width) * table[token]
        for column in range(width):
            angle = position / 10000.0 ** (2 * (column // 2) / width)
            row[column] += np.sin(angle) if column % 2 == 0 else np.cos(angle)
        rows.append(row)
    return np.array(rows)


def _around(params: Tree, pre: bool, x: np.ndarray, function: Any) -> np.ndarray:
    """x + f(LN(x)), or LN(x + f(x))."""
    return (
        x + function(_norm(params["scale"], x)) if pre else _norm(params["scale"], x + function(x))
    )


def _norm(params: Tree, x: np.ndarray) -> np.ndarray:
    """(x - mean) / sqrt(variance + 1e-6) * g + b, each row alone, the variance over d."""
    rows = [(row - row.mean()) / np.sqrt(((row - row.mean()) ** 2).mean() + 1e-6) for row in x]
    return np.array(rows) * params["scale"] + params["bias"]


def _feed_forward(params: Tree, x: np.ndarray) -> np.ndarray:
    """max(0, x W_1 + b_1) W_2 + b_2."""
    inner = x @ params["inner"]["kernel"] + params["inner"]["bias"]
    return np.where(inner > 0, inner, 0.0) @ params["outer"]["kernel"] + params["outer"]["bias"]


def _heads(
    params: Tree, heads: int, x: np.ndarray, memory: np.ndarray, causal: bool = False
) -> np.ndarray:
    """concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) W_o; `causal`: position i sees the positions up
    to i.
    """
    query, key, value = (
        x @ params["w_query"]["kernel"],
        memory @ params["w_key"]["kernel"],
        memory @ params["w_value"]["kernel"],
    )
    width = query.shape[1] // heads
    joined = np.zeros_like(query)
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(len(x)):
            seen = range(i + 1 if causal else len(memory))
            weights = softmax(
                np.array([query[i, part] @ key[j, part] / np.sqrt(width) for j in seen])
            )
            for weight, j in zip(weights, seen, strict=True):
                joined[i, part] += weight * value[j, part]
    return joined @ params["out"]["kernel"]
