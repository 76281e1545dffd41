"""Float64 NumPy references of norms and feed-forwards, written from the formulas, and what other
references are made of too.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def affine(params: Any, x: np.ndarray) -> np.ndarray:
    """x W + b, without b where there is none."""
    return x @ params["kernel"] + params.get("bias", 0.0)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def norm_of(name: str, params: Any, x: np.ndarray, epsilon: float) -> np.ndarray:
    """The table at the top of `norms.py`, row by row."""
    actual = np.zeros_like(x)
    g, b = params.get("scale", 1.0), params.get("bias", 0.0)
    for index in np.ndindex(x.shape[:-1]):
        row = x[index]
        if name == "layer_norm":
            variance = ((row - row.mean()) ** 2).sum() / len(row)
            actual[index] = (row - row.mean()) / np.sqrt(variance + epsilon) * g + b
        elif name.startswith("rms_norm"):
            root = np.sqrt((row @ row) / len(row) + epsilon)
            actual[index] = row / root * (1 + g if name.endswith("plus_one") else g)
        elif name == "scale_norm":
            actual[index] = g * row / max(np.sqrt(row @ row), epsilon)
        elif name == "batch_norm":
            actual[index] = (row - params["mean"]) / np.sqrt(params["variance"] + epsilon) * g + b
        elif name == "dynamic_tanh":
            actual[index] = g * np.tanh(params["slope"] * row) + b
        else:
            assert name == "none"
            actual[index] = row
    return actual


def over_batch(
    params: Any, x: np.ndarray, valid: np.ndarray, epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Batch norm in training (Ioffe and Szegedy 2015, algorithm 1), and what algorithm 2 averages:
    mean and unbiased variance of each unit over the tokens that are valid.
    """
    tokens = x[valid]
    mean = tokens.sum(axis=0) / len(tokens)
    variance = ((tokens - mean) ** 2).sum(axis=0) / len(tokens)
    actual = (x - mean) / np.sqrt(variance + epsilon) * params["scale"] + params["bias"]
    return actual, mean, variance * len(tokens) / (len(tokens) - 1)


def _gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


PLAIN: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
    "squared_relu": lambda x: max(x, 0.0) ** 2,
}
GATED: dict[str, Callable[[float], float]] = {
    "glu": sigmoid,
    "bilinear": lambda x: x,
    "reglu": PLAIN["relu"],
    "geglu": _gelu,
    "geglu_tanh": _gelu_tanh,
    "swiglu": PLAIN["silu"],
}


def feed_forward(name: str, params: Any, x: np.ndarray) -> np.ndarray:
    """The table at the top of `feedforward.py`, number by number."""
    if name == "none":
        return np.zeros_like(x)

    def affine(layer: str, x: np.ndarray) -> np.ndarray:
        actual: np.ndarray = x @ params[layer]["kernel"] + params[layer].get("bias", 0.0)
        return actual

    inner = affine("inner", x)
    if name in PLAIN:
        return affine("outer", np.vectorize(PLAIN[name])(inner))
    return affine("outer", np.vectorize(GATED[name])(affine("gate", x)) * inner)
