"""The kit that the oracles are made of: batches, words, recurrent cells, attention, blocks."""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tests.attention.oracles import ORACLES as MECHANISMS
from tests.attention.oracles import part
from tests.attention.position_oracles import sinusoid
from tests.layers.oracles import feed_forward, norm_of, sigmoid, softmax

Tree = Any
Vector = np.ndarray
Settings = dict[str, Any]
State = tuple[Vector, Vector]
"""Of a recurrent layer, (c, h)."""


def of_each_row(oracle: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """An oracle of batches, of one that takes parameters, settings and a row of each input, ids
    without padding, and returns what the system says of them.
    """

    @functools.wraps(oracle)
    def of_batch(params: Tree, settings: Settings, *read: np.ndarray) -> np.ndarray:
        rows = zip(*read, strict=True)
        return np.array([oracle(params, settings, *map(real, inputs)) for inputs in rows])

    return of_batch


def of_each_token(oracle: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """An oracle of batches [B,T,n], with zeros at padding, of one that takes parameters, settings,
    a text without padding and what is read beside it, and returns [n] for each of its tokens.
    """

    @functools.wraps(oracle)
    def of_batch(
        params: Tree, settings: Settings, tokens: np.ndarray, *beside: np.ndarray
    ) -> np.ndarray:
        found = [
            oracle(params, settings, row[row != 0], *(one[row != 0] for one in others))
            for row, *others in zip(tokens, *beside, strict=True)
            if row.any()
        ]
        result = np.zeros((*tokens.shape, np.shape(found[0])[1]))
        result[tokens != 0] = np.concatenate(found)
        return result

    return of_batch


def real(row: np.ndarray) -> np.ndarray:
    """Ids without padding; other rows as they are."""
    return row[row != 0] if np.issubdtype(row.dtype, np.integer) else row


def embeddings(layer: Tree, ids: np.ndarray) -> list[Vector]:
    """The vector of each id."""
    return list(layer["embedding"][ids])


def affine(layer: Tree, x: np.ndarray) -> np.ndarray:
    """x [...,n] W + c, without c where there is none; an LSTM always has c, and its W stands a level
    deeper.
    """
    kernel = layer["kernel"]
    if isinstance(kernel, dict):
        return x @ kernel["kernel"] + layer["bias"]
    return x @ kernel + layer.get("bias", 0.0)


def additive_scores(score: Tree, state: Vector, keys: list[Vector]) -> Vector:
    """e_j = v . tanh(W s + U h_j)."""
    query = state @ score["w_query"]["kernel"]
    return np.array([score["v"] @ np.tanh(query + key @ score["w_key"]["kernel"]) for key in keys])


def mean_of(weights: Vector, values: Sequence[Vector]) -> Vector:
    """c = sum_j a_j h_j."""
    return weights @ np.array(values)


def additive(params: Tree, state: Vector, annotations: list[Vector]) -> Vector:
    """Additive attention: sum_j softmax(e)_j h_j."""
    return mean_of(softmax(additive_scores(params["score"], state, annotations)), annotations)


def no_state(layer: Tree) -> State:
    """The state (c, h) before anything was read: zeros."""
    cell = layer["cell"]
    width = len(cell["candidate"] if "candidate" in cell else cell["past"])
    return np.zeros(width), np.zeros(width)


def cell_step(cell: Tree, state: State, given: Vector, beside: Vector | float = 0.0) -> State:
    """The next state of a cell, which its parameters tell; `given` is x W + b. Only an LSTM has c.

    LSTM: i, f, o, g = sigma, sigma, sigma, tanh of (x W + h U + b), c' = f c + i g,
    h' = o tanh(c'). GRU: h' = (1 - z) h + z n, with n = tanh(x W + (r * h) U + b), or, where U is
    one array, n = tanh(x W + b + r * (h U + `beside`)), as in Cho et al. 2014, whose z is the share
    of the old state.
    """
    c, h = state
    if "candidate" in cell:
        r, z = np.split(sigmoid(given[: 2 * len(h)] + h @ cell["gates"]), 2)
        h = (1 - z) * h + z * np.tanh(given[2 * len(h) :] + (r * h) @ cell["candidate"])
        return h, h
    past = h @ cell["past"] + beside
    if len(past) == len(h):  # tanh RNN
        h = np.tanh(given + past)
        return h, h
    if len(past) == 3 * len(h):
        (of_r, of_z, of_n), (u_r, u_z, u_n) = np.split(given, 3), np.split(past, 3)
        r, z = sigmoid(of_r + u_r), sigmoid(of_z + u_z)
        h = (1 - z) * h + z * np.tanh(of_n + r * u_n)
        return h, h
    i, f, o, g = np.split(given + past, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def layer_step(layer: Tree, state: State, x: Vector) -> State:
    """The next state of a recurrent layer that reads x."""
    assert "bias" in layer["of_input"]
    return cell_step(layer["cell"], state, affine(layer["of_input"], x))


def passed(layer: Tree, words: list[Vector]) -> tuple[list[Vector], State]:
    """A recurrent layer over a sequence, from zeros: what it puts out, and its last state."""
    state, outputs = no_state(layer), []
    for word in words:
        state = layer_step(layer, state, word)
        outputs.append(state[1])
    return outputs, state


def both_ways(layers: Tree, words: list[Vector]) -> tuple[list[Vector], list[State]]:
    """A recurrent layer of two directions: [forward ; backward] of every word, and the last states
    of both.
    """
    forward, at_end = passed(layers["forward"], words)
    backward, at_beginning = passed(layers["backward"], words[::-1])
    pairs = zip(forward, backward[::-1], strict=True)
    return [np.concatenate(pair) for pair in pairs], [at_end, at_beginning]


def stack(params: Tree) -> list[Tree]:
    """The layers of a stack, from the lowest."""
    return [params[f"layer_{number}"] for number in range(len(params))]


def stacked(layers: list[Tree], x: list[Vector]) -> tuple[list[Vector], list[State]]:
    """Recurrent layers over a sequence: what the top one puts out, and the last state of each."""
    last = []
    for layer in layers:
        x, state = passed(layer, x)
        last.append(state)
    return x, last


def in_layer(settings: Settings, layer: int) -> Settings:
    """The settings of a layer: of each part that is "by_layer", the one that its pattern names."""
    result = {}
    for key, value in settings.items():
        while isinstance(value, dict) and value.get("name") == "by_layer":
            pattern = value.get("pattern", ("one", "other"))
            value = value[pattern[layer % len(pattern)]]
        result[key] = value
    return result


def placed(
    params: Tree,
    settings: Settings,
    x: np.ndarray,
    functions: dict[str, Callable[[np.ndarray], np.ndarray]],
    absent: Collection[str] = (),
) -> np.ndarray:
    """x [T,d] through the functions of a layer, as `layers/block.py` says; `functions` by the names
    of their residual connections, of which those in `absent` are left out.
    """
    functions = {name: function for name, function in functions.items() if name not in absent}
    placement = settings.get("norm", "pre")
    if placement == "parallel":
        if not functions:
            return x
        normed = normalised(params.get("normalisation", {}), settings, x)
        return x + sum(function(normed) for function in functions.values())
    for name, function in functions.items():
        own = params.get(f"around_{name}", {})

        def norm(x: np.ndarray, which: str = "normalisation", own: Tree = own) -> np.ndarray:
            return normalised(own.get(which, {}), settings, x)

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


def normalised(params: Tree | None, settings: Settings, x: np.ndarray) -> np.ndarray:
    """The norm that the settings name, a layer norm if they name none, of x; x itself where there
    is no norm (`params` is None).
    """
    name, fields = part(settings, "normalisation", "layer_norm")
    return x if params is None else norm_of(name, params, x, fields.get("epsilon", 1e-6))


def absent_parts(settings: Settings, slots: Collection[str]) -> set[str]:
    """Those of the slots of a layer in which there is nothing."""
    return {slot for slot in slots if part(settings, slot, "")[0] == "none"}


def looked(
    settings: Settings,
    slot: str,
    params: Tree,
    queries: np.ndarray,
    source: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    causal: bool = False,
    places: Any = None,
) -> np.ndarray:
    """What queries [Tq,d] find in a source [Tk,d], themselves without one, by the mechanism in a
    slot; `mask` [Tq,Tk]: what may be seen, all without one; `places`: those of patches on their grid.
    """
    name, fields = part(settings, slot, "multihead")
    if fields.get("positions") == "rope_2d":
        fields["positions"] = {"name": "rope_2d", "places": places}
    keys = queries if source is None else source
    mask = np.ones((len(queries), len(keys)), bool) if mask is None else mask
    return MECHANISMS[name](params, fields, queries[None], keys[None], mask[None], causal)[0][0]


def embedded(
    table: np.ndarray, settings: Settings, ids: np.ndarray, places: Tree, scaled: bool = False
) -> np.ndarray:
    """Words of a text, times sqrt(d) if they are `scaled`, with their positions, [T,d]: sines, or the
    rows of a table (`places`), whose first ones may be unused.
    """
    x, apart = table[ids], settings.get("position_width", 0)
    x = x * np.sqrt(x.shape[1]) if settings.get("scaled_embedding", scaled) else x
    name, fields = part(settings, "positions", "sinusoidal")
    if name == "none":
        return x
    added = np.array([sinusoid(p, apart or x.shape[1]) for p in range(len(x))])
    if name == "learned":
        added = places["table"][fields.get("unused", 0) :][: len(x)]
    return np.concatenate([x, added], axis=1) if apart else x + added


def blocks(
    params: Tree,
    settings: Settings,
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
        look = functools.partial(looked, of, "attention", own.get("attention"))
        inner = part(of, "feed_forward", forward)[0]
        functions = {
            "attention": functools.partial(look, mask=mask, causal=causal, places=places),
            "feed_forward": functools.partial(feed_forward, inner, own.get("feed_forward")),
        }
        x = placed(own, settings, x, functions, absent_parts(of, functions))
    return normalised(params.get("top"), settings, x)
