"""What several oracles are made of."""

import functools
from typing import Any

import numpy as np

from tests.attention.oracles import ORACLES as MECHANISMS
from tests.attention.oracles import part
from tests.layers.oracles import feed_forward, norm_of

Tree = Any
Vector = np.ndarray


def affine(layer: Tree, x: np.ndarray) -> np.ndarray:
    """x [...,n] W + c, without c where there is none."""
    result: np.ndarray = x @ layer["kernel"] + layer.get("bias", 0.0)
    return result


def sigmoid(x: Vector) -> Vector:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + np.exp(-x))


def softmax(scores: Vector) -> Vector:
    """e^{x_j} / sum_k e^{x_k}."""
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def additive_scores(score: Tree, state: Vector, keys: list[Vector]) -> Vector:
    """e_j = v . tanh(W s + U h_j)."""
    query = state @ score["w_query"]["kernel"]
    return np.array([score["v"] @ np.tanh(query + key @ score["w_key"]["kernel"]) for key in keys])


def mean_of(weights: Vector, values: list[Vector]) -> Vector:
    """c = sum_j a_j h_j."""
    context = np.zeros_like(values[0])
    for weight, value in zip(weights, values, strict=True):
        context = context + weight * value
    return context


def additive(params: Tree, state: Vector, annotations: list[Vector]) -> Vector:
    """Additive attention: sum_j softmax(e)_j h_j."""
    return mean_of(softmax(additive_scores(params["score"], state, annotations)), annotations)


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


def passed(layer: Tree, words: list[Vector]) -> tuple[list[Vector], tuple[Vector, Vector]]:
    """A recurrent layer over a sequence, from zeros: what it puts out, and its last state (c, h)."""
    state, outputs = lstm_start(layer), []
    for word in words:
        state = lstm(layer, state, inputs(layer, word))
        outputs.append(state[1])
    return outputs, state


def both_ways(
    layers: Tree, words: list[Vector]
) -> tuple[list[Vector], list[tuple[Vector, Vector]]]:
    """A recurrent layer of two directions: [forward ; backward] of every word, and the last states
    of both.
    """
    forward, at_end = passed(layers["forward"], words)
    backward, at_beginning = passed(layers["backward"], words[::-1])
    pairs = zip(forward, backward[::-1], strict=True)
    return [np.concatenate(pair) for pair in pairs], [at_end, at_beginning]


def in_layer(settings: dict[str, Any], layer: int) -> dict[str, Any]:
    """The settings of a layer: of each part that is "by_layer", the one that its pattern names."""
    result = {}
    for key, value in settings.items():
        while isinstance(value, dict) and value.get("name") == "by_layer":
            pattern = value.get("pattern", ("one", "other"))
            value = value[pattern[layer % len(pattern)]]
        result[key] = value
    return result


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


def heads_of(
    params: Tree,
    heads: int,
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    causal: bool = False,
    bias: np.ndarray | float = 0.0,
    divided: bool = True,
) -> np.ndarray:
    """concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) W_o; `causal`: position i sees the positions up
    to i. `bias` [H,Tq,Tk] is added to the scores; T5 does not divide them by sqrt(D).
    """
    q, k, v = (
        affine(params[name], rows)
        for name, rows in (("w_query", queries), ("w_key", keys), ("w_value", values))
    )
    joined, width = np.zeros_like(q), q.shape[1] // heads
    added = np.broadcast_to(bias, (heads, len(q), len(k)))
    for h, i in np.ndindex(heads, len(q)):
        part, seen = slice(h * width, (h + 1) * width), i + 1 if causal else len(k)
        scores = k[:seen, part] @ q[i, part] / (np.sqrt(width) if divided else 1.0)
        joined[i, part] = softmax(scores + added[h, i, :seen]) @ v[:seen, part]
    return affine(params["out"], joined)


def embedded(params: Tree, settings: dict[str, Any], ids: np.ndarray) -> np.ndarray:
    """Words of a text with their positions, [T,d]."""
    x = params["embed"]["embedding"][ids]
    x = x * np.sqrt(x.shape[1]) if settings.get("scaled_embedding") else x
    if "positions" not in params:
        return x
    places = params["positions"]["table"][: len(x)]
    return np.concatenate([x, places], axis=1) if settings.get("position_width") else x + places


def blocks(
    params: Tree,
    settings: dict[str, Any],
    x: np.ndarray,
    forward: str,
    causal: bool = False,
    places: Any = None,
) -> np.ndarray:
    """x [T,d] through the layers of a stack, which may differ, and the norm on top; `forward`: the
    feed-forward if nothing is said, `places`: those of patches on their grid.
    """
    distance = np.arange(len(x))[:, None] - np.arange(len(x))
    for number in range(settings["layers"]):
        own, of = params.get(f"layer_{number}", {}), in_layer(settings, number)
        rule, fields = part(of, "visibility", "full")
        mask = np.abs(distance) < (fields["width"] if rule == "window" else len(x))
        mask = mask & (distance >= 0) if causal else mask
        name, looking = part(of, "attention", "multihead")
        if looking.get("positions") == "rope_2d":
            looking["positions"] = {"name": "rope_2d", "places": places}
        inner = part(of, "feed_forward", forward)[0]
        functions = {
            "attention": functools.partial(
                _looked, name, own.get("attention"), looking, mask, causal
            ),
            "feed_forward": functools.partial(feed_forward, inner, own.get("feed_forward")),
        }
        for around, chosen in (("attention", name), ("feed_forward", inner)):
            if chosen == "none":
                del functions[around]
        x = placed(own, settings, x, functions, "layer_norm")
    return normalised(params["top"], settings, x, "layer_norm") if "top" in params else x


def _looked(
    name: str, params: Tree, fields: Any, mask: np.ndarray, causal: bool, y: np.ndarray
) -> np.ndarray:
    """y [T,d] through a mechanism that looks at it."""
    out: np.ndarray = MECHANISMS[name](params, fields, y[None], y[None], mask[None], causal)[0][0]
    return out
