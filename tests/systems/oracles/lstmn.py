"""Long Short-Term Memory-Networks (Cheng et al. 2016), one word and one slot at a time."""

from typing import Any

import numpy as np

from tests.systems.oracles.lstm_lm import texts
from tests.systems.oracles.parts import (
    Tree,
    Vector,
    additive_scores,
    affine,
    mean_of,
    sigmoid,
    softmax,
)

State = tuple[Vector, Vector]  # h and c


def lstmn_lm(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """The language model: logits [B,T,V]."""
    logits = np.zeros((*tokens.shape, params["out"]["kernel"].shape[1]))
    for b, text in enumerate(texts(tokens)):
        for t, (h, _) in enumerate(_stack(params, settings, text)):
            logits[b, t] = affine(params["out"], h)
    return logits


def lstmn_classifier(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """The classifier of one text: logits [B,C]."""
    width = len(params["reader_0"]["cell"]["past"])
    read = [[h for h, _ in _stack(params, settings, text)] for text in texts(source)]
    last = settings.get("pooling") == "last"
    result = [_mean(states[-1:] if last else states, width) for states in read]
    return np.array([_verdict(params["verdict"], one) for one in result])


def lstmn_pair(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """The classifier of two texts: logits [B,C]."""
    assert target is not None
    logits, width = [], len(params["readers"]["encoder"]["cell"]["past"])
    table = params["embed"]["embedding"]
    for one, other in zip(texts(source), texts(target), strict=True):
        first, seen = _both(params["readers"], settings, list(table[one]), list(table[other]))
        both = np.concatenate([_mean([h for h, _ in first], width), _mean(seen, width)])
        logits.append(_verdict(params["verdict"], both))
    return np.array(logits)


def lstmn_seq2seq(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """The encoder-decoder: logits [B,T,V]."""
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b, words in enumerate(texts(source)):
        y = [params["embed_source"]["embedding"][word] for word in words]
        x = [params["embed_target"]["embedding"][word] for word in target_in[b]]
        for t, z in enumerate(_both(params["readers"], settings, y, x)[1]):
            logits[b, t] = affine(params["out"], z)
    return logits


def _stack(params: Tree, settings: dict[str, Any], text: np.ndarray) -> list[State]:
    """What the top layer of `reader_0`, `reader_1`, ... holds after each word."""
    xs, result, number = [params["embed"]["embedding"][word] for word in text], [], 0
    while f"reader_{number}" in params:
        result = _read(params[f"reader_{number}"], settings, xs)
        xs, number = [h for h, _ in result], number + 1
    return result


def _both(
    readers: Tree, settings: dict[str, Any], y: list[Vector], x: list[Vector]
) -> tuple[list[State], list[Vector]]:
    """The states of the first sequence, and z_t of the second."""
    width = len(readers["encoder"]["cell"]["past"])
    origin = settings.get("origin", "encoder")
    first = _read(
        readers["encoder"], {**settings, "origin": "none" if origin == "none" else "zeros"}, y
    )
    ended = first[-1] if first else (np.zeros(width), np.zeros(width))
    if settings.get("fusion", "deep") == "deep":
        return first, [
            h for h, _ in _read(readers["decoder"], {**settings, "origin": origin}, x, ended, first)
        ]
    second = _read(readers["decoder"], {**settings, "origin": origin}, x, ended)
    seen = []
    for h, _ in second:
        context = _found(
            readers["inter_attention"]["score"], h, [(one, one) for one, _ in first], width
        )[0]
        seen.append(np.tanh(np.concatenate([h, context]) @ readers["merge"]["kernel"]))
    return first, seen


def _read(
    layer: Tree,
    settings: dict[str, Any],
    xs: list[Vector],
    ended: State | None = None,
    other: list[State] | None = None,
) -> list[State]:
    """Section 3 (and, with another sequence, section 4.2) of the paper: h and c after each word."""
    width = len(layer["cell"]["past"])
    nothing = np.zeros(width)
    origin = settings.get("origin", "zeros")
    assert ended is not None or origin != "encoder"
    tape = {"zeros": [(nothing, nothing)], "none": [], "encoder": [ended]}[origin]
    before, span = len(tape), settings.get("span")
    summary, gamma = nothing, nothing
    for x in xs:
        written = tape[before:]
        slots = tape[:before] + (written if span is None else written[-span:])
        asks = x if settings.get("question") == "word" else np.concatenate([x, summary])
        summary, cell = _found(layer["attention"]["score"], asks, slots, width)
        gates = (
            x @ layer["of_input"]["kernel"]["kernel"]
            + layer["of_input"]["bias"]
            + summary @ layer["cell"]["past"]
        )
        i, f, o, g = np.split(gates, 4)
        c = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        if other is not None:
            gamma, alpha = _found(
                layer["inter_attention"]["score"], np.concatenate([x, gamma]), other, width
            )
            gate = affine(layer["gate_word"], x) + gamma @ layer["gate_found"]["kernel"]
            c = c + sigmoid(gate) * alpha
        tape.append((sigmoid(o) * np.tanh(c), c))
    return tape[before:]


def _found(fit: Tree, asks: Vector, slots: list[State], width: int) -> State:
    """s_i = softmax of v . tanh(h_i W_h + question W), sum_i s_i h_i and sum_i s_i c_i; zeros where
    there is no slot.
    """
    h, c = np.zeros(width), np.zeros(width)
    if slots:
        weights = softmax(additive_scores(fit, asks, [one for one, _ in slots]))
        h, c = (mean_of(weights, [slot[part] for slot in slots]) for part in (0, 1))
    return h, c


def _mean(states: list[Vector], width: int) -> Vector:
    return np.mean(states, axis=0) if states else np.zeros(width)


def _verdict(params: Tree, x: Vector) -> Vector:
    """Two hidden layers with ReLU, and the classes."""
    for name in ("lower", "upper"):
        x = np.maximum(affine(params[name], x), 0.0)
    return affine(params["out"], x)
