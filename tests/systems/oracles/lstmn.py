"""Long Short-Term Memory-Networks (Cheng et al. 2016), one word and one slot at a time."""

import numpy as np

from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_row, of_each_token

State = tuple[Vector, Vector]  # h and c


@of_each_token
def lstmn_lm(params: Tree, settings: Settings, text: Vector) -> list[Vector]:
    """The language model."""
    return [affine(params["out"], h) for h in _stack(params, settings, text)]


@of_each_row
def lstmn_classifier(params: Tree, settings: Settings, text: Vector) -> Vector:
    """The classifier of one text."""
    states, last = _stack(params, settings, text), settings.get("pooling") == "last"
    width = len(params["reader_0"]["cell"]["past"])
    return _verdict(params["verdict"], _mean(states[-1:] if last else states, width))


@of_each_row
def lstmn_pair(params: Tree, settings: Settings, source: Vector, target: Vector) -> Vector:
    """The classifier of two texts."""
    width = len(params["readers"]["encoder"]["cell"]["past"])
    y, x = (parts.embeddings(params["embed"], text) for text in (source, target))
    first, seen = _both(params["readers"], settings, y, x)
    both = np.concatenate([_mean([h for h, _ in first], width), _mean(seen, width)])
    return _verdict(params["verdict"], both)


@of_each_row
def lstmn_seq2seq(
    params: Tree, settings: Settings, source: Vector, target_in: Vector
) -> list[Vector]:
    """The encoder-decoder."""
    y = parts.embeddings(params["embed_source"], source)
    x = parts.embeddings(params["embed_target"], target_in)
    return [affine(params["out"], z) for z in _both(params["readers"], settings, y, x)[1]]


def _stack(params: Tree, settings: Settings, text: Vector) -> list[Vector]:
    """h of the top layer of `reader_0`, `reader_1`, ... after each word."""
    xs, number = parts.embeddings(params["embed"], text), 0
    while f"reader_{number}" in params:
        xs = [h for h, _ in _read(params[f"reader_{number}"], settings, xs)]
        number += 1
    return xs


def _both(
    readers: Tree, settings: Settings, y: list[Vector], x: list[Vector]
) -> tuple[list[State], list[Vector]]:
    """The states of the first sequence, and z_t of the second."""
    width = len(readers["encoder"]["cell"]["past"])
    origin = settings.get("origin", "encoder")
    before = "none" if origin == "none" else "zeros"
    first = _read(readers["encoder"], {**settings, "origin": before}, y)
    ended = first[-1] if first else (np.zeros(width), np.zeros(width))
    deep = settings.get("fusion", "deep") == "deep"
    other = first if deep else None
    second = _read(readers["decoder"], {**settings, "origin": origin}, x, ended, other)
    seen = [h for h, _ in second]
    if not deep:
        fit = readers["inter_attention"]["score"]
        pairs = [np.concatenate([h, _found(fit, h, first, width)[0]]) for h in seen]
        seen = [np.tanh(pair @ readers["merge"]["kernel"]) for pair in pairs]
    return first, seen


def _read(
    layer: Tree,
    settings: Settings,
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
        gates = affine(layer["of_input"], x) + summary @ layer["cell"]["past"]
        i, f, o, g = np.split(gates, 4)
        c = parts.sigmoid(f) * cell + parts.sigmoid(i) * np.tanh(g)
        if other is not None:
            fit = layer["inter_attention"]["score"]
            gamma, alpha = _found(fit, np.concatenate([x, gamma]), other, width)
            gate = affine(layer["gate_word"], x) + gamma @ layer["gate_found"]["kernel"]
            c = c + parts.sigmoid(gate) * alpha
        tape.append((parts.sigmoid(o) * np.tanh(c), c))
    return tape[before:]


def _found(fit: Tree, asks: Vector, slots: list[State], width: int) -> State:
    """s_i = softmax of v . tanh(h_i W_h + question W), sum_i s_i h_i and sum_i s_i c_i; zeros where
    there is no slot.
    """
    h, c = np.zeros(width), np.zeros(width)
    if slots:
        weights = parts.softmax(parts.additive_scores(fit, asks, [one for one, _ in slots]))
        h, c = (parts.mean_of(weights, [slot[part] for slot in slots]) for part in (0, 1))
    return h, c


def _mean(states: list[Vector], width: int) -> Vector:
    return np.mean(states, axis=0) if states else np.zeros(width)


def _verdict(params: Tree, x: Vector) -> Vector:
    """Two hidden layers with ReLU, and the classes."""
    for name in ("lower", "upper"):
        x = np.maximum(affine(params[name], x), 0.0)
    return affine(params["out"], x)
