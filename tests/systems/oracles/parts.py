"""What several oracles are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.attention.oracles.rows import part
from tests.layers.oracles import norm_of

Tree = Any
Vector = np.ndarray


def affine(layer: Tree, x: np.ndarray) -> np.ndarray:
    """x [...,n] W + c."""
    found: np.ndarray = x @ layer["kernel"] + layer["bias"]
    return found


def sigmoid(x: Vector) -> Vector:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + np.exp(-x))


def softmax(scores: Vector) -> Vector:
    """e^{x_j} / sum_k e^{x_k}."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def additive(params: Tree, state: Vector, annotations: list[Vector]) -> Vector:
    """e_j = v . tanh(W s + U h_j), c = sum_j softmax(e)_j h_j."""
    params = params["score"]
    query = state @ params["w_query"]["kernel"]
    weights = softmax(
        np.array(
            [params["v"] @ np.tanh(query + one @ params["w_key"]["kernel"]) for one in annotations]
        )
    )
    context = np.zeros_like(annotations[0])
    for weight, one in zip(weights, annotations, strict=True):
        context += weight * one
    return context


def lstm_start(layer: Tree) -> tuple[Vector, Vector]:
    """The state (c, h) before anything was read: zeros."""
    cell = layer["cell"]
    width = len(cell["candidate"] if "candidate" in cell else cell["past"])
    return np.zeros(width), np.zeros(width)


def inputs(layer: Tree, x: Vector) -> Vector:
    """x W of a recurrent layer; that of an LSTM stands a level deeper."""
    kernel = layer["of_input"]["kernel"]
    return x @ (kernel["kernel"] if isinstance(kernel, dict) else kernel)


def lstm(layer: Tree, state: tuple[Vector, Vector], given: Vector) -> tuple[Vector, Vector]:
    """i, f, o, g = sigma, sigma, sigma, tanh of (x W + h U + b), c' = f c + i g, h' = o tanh(c');
    `given` is x W, the state (c, h); or a step of another cell, by what its parameters are.
    """
    c, h = state
    given = given + layer["of_input"]["bias"]
    cell = layer["cell"]
    if "candidate" in cell:  # GRU: r, z, n, z the share of the new; no c
        of_gates = sigmoid(given[: 2 * len(h)] + h @ cell["gates"])
        r, z = np.split(of_gates, 2)
        h = (1 - z) * h + z * np.tanh(given[2 * len(h) :] + (r * h) @ cell["candidate"])
        return h, h
    if cell["past"].shape[0] == cell["past"].shape[1]:  # tanh RNN; no c
        h = np.tanh(given + h @ cell["past"])
        return h, h
    i, f, o, g = np.split(given + h @ cell["past"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def in_layer(settings: dict[str, Any], layer: int) -> dict[str, Any]:
    """The settings of a layer: of each part that is "by_layer", the one that its pattern names."""
    found = {}
    for key, value in settings.items():
        while isinstance(value, dict) and value.get("name") == "by_layer":
            pattern = value.get("pattern", ("one", "other"))
            value = value[pattern[layer % len(pattern)]]
        found[key] = value
    return found


def placed(
    params: Tree, settings: dict[str, Any], x: np.ndarray, functions: dict[str, Any], usual: str
) -> np.ndarray:
    """x [T,d] through the functions of a layer, as `layers/block.py` says; `functions` by the names
    of their residual connections, without those that are "none"; `usual`: the norm if nothing is
    said.
    """
    placement = settings.get("norm", "pre")
    if placement == "parallel":
        if not functions:
            return x
        normed = normalised(params.get("normalisation", {}), settings, x, usual)
        return x + sum(function(normed) for function in functions.values())
    for name, function in functions.items():
        own = params.get(f"around_{name}", {})

        def norm(x: np.ndarray, which: str = "normalisation", own: Tree = own) -> np.ndarray:
            return normalised(own.get(which, {}), settings, x, usual)

        match placement:
            case "post":
                x = norm(x + function(x))
            case "pre":
                x = x + function(norm(x))
            case "sandwich":
                x = x + norm(function(norm(x)), "normalisation_out")
            case "res_post":
                x = x + norm(function(x))
            case "rezero":
                x = x + own["strength"] * function(x)
            case "none":
                x = function(norm(x))
    return x


def normalised(params: Tree, settings: dict[str, Any], x: np.ndarray, usual: str) -> np.ndarray:
    """The norm that the settings name."""
    name, fields = part(settings, "normalisation", usual)
    return norm_of(name, params, x, fields.get("epsilon", 1e-6))
