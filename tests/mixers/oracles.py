"""Float64 references of the mixers that are no attention, token by token: what is real is read, in
its order, and padding is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.mixers import delta, stateful, untied

Oracle = Callable[[Any, dict[str, Any], np.ndarray, np.ndarray], np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(p: np.ndarray, state: list[np.ndarray], cell: Any) -> list[np.ndarray]:
    h, c = state
    i, f, o, g = np.split(p + h @ cell["past"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def gru(p: np.ndarray, state: list[np.ndarray], cell: Any) -> list[np.ndarray]:
    h, size = state[0], len(state[0])
    r, z = np.split(sigmoid(p[: 2 * size] + h @ cell["gates"]), 2)
    n = np.tanh(p[2 * size :] + (r * h) @ cell["candidate"])
    return [(1 - z) * h + z * n]


def tanh(p: np.ndarray, state: list[np.ndarray], cell: Any) -> list[np.ndarray]:
    return [np.tanh(p + state[0] @ cell["past"])]


def recurrent(params: Any, config: dict[str, Any], x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """y_t = h_t W_o, or h_t."""
    step = {"lstm": lstm, "gru": gru, "tanh": tanh}[config.get("cell", "lstm")]
    size, inputs = config.get("state", x.shape[-1]), params["cell"]["of_input"]
    found = np.zeros(x.shape)
    for b, row in enumerate(x):
        state = [np.zeros(size)] * (2 if step is lstm else 1)
        for t, token in enumerate(row):
            if valid[b, t]:
                kernel = inputs["kernel"]
                kernel = kernel["kernel"] if isinstance(kernel, dict) else kernel  # the LSTM's
                p = token @ kernel + inputs["bias"]
                state = step(p, state, params["cell"]["cell"])
            found[b, t] = state[0] @ params["out"]["kernel"] if "out" in params else state[0]
    return found


def convolution(
    params: Any, config: dict[str, Any], x: np.ndarray, valid: np.ndarray
) -> np.ndarray:
    """The gated linear unit of the last k real tokens; zeros at padding."""
    linear, k = params["convolution"]["linear"], config["kernel"]
    kernel = linear["v"] * (linear["g"] / np.sqrt((linear["v"] ** 2).sum(axis=0)))
    found = np.zeros(x.shape)
    for b, row in enumerate(x):
        read = [np.zeros(x.shape[-1])] * (k - 1)
        for t, token in enumerate(row):
            if valid[b, t]:
                read.append(token)
                a, gate = np.split(
                    np.concatenate(read[len(read) - k :]) @ kernel + linear["bias"], 2
                )
                found[b, t] = a * sigmoid(gate)
    return found


MIXER_ORACLES: dict[str, Oracle] = {
    "recurrent": recurrent,
    "convolution": convolution,
    "retention": stateful.retention,
    "gated_linear": stateful.gated_linear,
    "hgrn": stateful.hgrn,
    "mamba": stateful.mamba,
    "delta_net": delta.delta_net,
    "gated_delta_net": delta.gated_delta_net,
    "kda": delta.kda,
    "delta_product": delta.delta_product,
    "rwkv7": untied.rwkv7,
    "mlstm": untied.mlstm,
}
