"""The LSTM language model, and the stack of LSTMs that other language models begin with."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, inputs, lstm, lstm_start


def lstm_lm(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """Zaremba et al. 2014: the top layer's output to logits, by a matrix of its own or the
    embedding's.
    """
    table = params["embed"]["embedding"]
    matrix = table.T if settings.get("share") == "output" else params["out"]["kernel"]
    logits = np.zeros((*tokens.shape, len(table)))
    for b, text in enumerate(texts(tokens)):
        for t, h in enumerate(outputs(params, text)):
            logits[b, t] = h @ matrix + params["out"]["bias"]
    return logits


def texts(tokens: np.ndarray) -> list[np.ndarray]:
    """Each row without its padding."""
    return [row[row != 0] for row in tokens]


def outputs(params: Tree, text: np.ndarray) -> list[Vector]:
    """What the top layer puts out after each word."""
    layers = [params["reader"][f"layer_{number}"] for number in range(len(params["reader"]))]
    states = [lstm_start(layer) for layer in layers]
    result = []
    for word in text:
        x = params["embed"]["embedding"][word]
        for number, layer in enumerate(layers):
            states[number] = lstm(layer, states[number], inputs(layer, x))
            x = states[number][1]
        result.append(x)
    return result
