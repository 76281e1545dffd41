"""Recurrent language models, and recurrent classifiers of texts, of pairs and of tokens, one text at a
time.
"""

from typing import Any

import numpy as np

from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_row, of_each_token

PARTS = {"single": 1, "key_value": 2, "key_value_predict": 3}


def _outputs(params: Tree, text: Vector) -> list[Vector]:
    """What the top LSTM puts out after each word."""
    return parts.stacked(parts.stack(params["reader"]), parts.embeddings(params["embed"], text))[0]


@of_each_token
def lstm_lm(params: Tree, settings: Settings, text: Vector) -> np.ndarray:
    """Zaremba et al. 2014: the top layer's output to logits, by a matrix of its own or the
    embedding's.
    """
    shared = settings.get("share") == "output"
    matrix = params["embed"]["embedding"].T if shared else params["out"]["kernel"]
    return np.array(_outputs(params, text)) @ matrix + params["out"]["bias"]


@of_each_token
def attention_lm(params: Tree, settings: Settings, text: Vector) -> list[Vector]:
    """Daniluk et al. 2017, equations 1-10; `settings["piece"]` words are read at once, and only
    with `carry` "window" is seen what was before.
    """
    states, logits = _outputs(params, text), []
    for t, state in enumerate(states):
        first = max(0, t - settings["window"])
        if settings.get("carry") == "state":
            first = max(first, t - t % settings.get("piece", len(text)))
        star = _star(params, settings["attention"]["name"], state, states[first:t])
        logits.append(affine(params["out"], star))
    return logits


def _star(params: Tree, kind: str, state: Vector, window: list[Vector]) -> Vector:
    """h*_t of a state and those before it."""
    count = PARTS[kind]
    cut = np.split(state, count)
    # of one part, of two or of three: what asks is the first, what predicts the last
    key, own = cut[0], cut[-1]
    taken = min(1, count - 1)  # what is taken of an earlier state is its second part, if it has one
    earlier = [np.split(one, count) for one in window]
    result = np.zeros_like(own)
    if earlier:
        scores = parts.additive_scores(
            params["attention"]["score"], key, [one[0] for one in earlier]
        )
        result = parts.mean_of(parts.softmax(scores), [one[taken] for one in earlier])
    merge = params if kind == "single" else params["attention"]
    return np.tanh(result @ merge["of_found"]["kernel"] + own @ merge["of_own"]["kernel"])


@of_each_token
def ngram_rnn(params: Tree, settings: Settings, text: Vector) -> list[Vector]:
    """h*_t = tanh([h^1_t ; h^2_{t-1} ; ... ; h^{N-1}_{t-N+2}] W_N), with zeros before the text
    (Daniluk et al. 2017).
    """
    count, logits = settings["order"] - 1, []
    states = [np.split(one, count) for one in _outputs(params, text)]
    for t, state in enumerate(states):
        late = [states[t - i][i] if t >= i else np.zeros_like(state[i]) for i in range(count)]
        star = np.tanh(np.concatenate(late) @ params["merge"]["kernel"])
        logits.append(affine(params["out"], star))
    return logits


def _read(reader: Tree, text: Vector) -> tuple[list[Vector], Vector]:
    """The states [forward ; backward] of the words, and the last state of each direction side by
    side.
    """
    words = parts.embeddings(reader["embed"], text)
    if "forward" not in reader["lstm"]:  # one direction
        states, (_, end) = parts.passed(reader["lstm"], words)
        return states, end
    states, ends = parts.both_ways(reader["lstm"], words)
    return states, np.concatenate([h for _, h in ends])


def _judged(params: Tree, pooled: Any, texts: tuple[Vector, ...]) -> Vector:
    """Logits of a text, or of two from [p ; h ; |p - h| ; p * h], each `pooled` from its states and
    their ends.
    """
    p, *second = (pooled(*_read(params["reader"], text)) for text in texts)
    for h in second:
        p = np.concatenate([p, h, np.abs(p - h), p * h])
    return _verdict(params["verdict"], p)


def _verdict(params: Tree, features: Vector) -> Vector:
    """W_2 relu(W_1 x + b_1) + b_2."""
    return affine(params["last"], np.maximum(affine(params["first"], features), 0.0))


@of_each_row
def bilstm_pooling(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Conneau et al. 2017: mean, maximum or end of the states."""
    pooling = settings.get("pooling", "mean")

    def pooled(states: list[Vector], ends: Vector) -> Vector:
        if pooling == "last":
            return ends
        if not states:
            return np.zeros_like(ends)
        return np.max(states, axis=0) if pooling == "max" else np.mean(states, axis=0)

    return _judged(params, pooled, texts)


@of_each_row
def attention_pooling(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Yang et al. 2016, equations 5-7, with b = u W_q: e_j = v . tanh(h_j W + b), the weighted mean
    of the states.
    """

    def pooled(states: list[Vector], ends: Vector) -> Vector:
        if not states:
            return np.zeros_like(ends)
        return parts.additive(params["attention"], params["query"], states)

    return _judged(params, pooled, texts)


@of_each_row
def self_attentive(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Lin et al. 2017, equations 5-8; of two texts every row of both matrices by its own weights,
    and their product.
    """
    matrices = [_matrix(params, text)[1] for text in texts]
    rows = matrices[0]
    if len(matrices) == 2:
        gates = (params["gate_source"]["kernel"], params["gate_target"]["kernel"])
        rows = [
            (p @ gates[0][i]) * (h @ gates[1][i])
            for i, (p, h) in enumerate(zip(*matrices, strict=True))
        ]
    return _verdict(params["verdict"], np.concatenate(rows))


@of_each_row
def penalties(params: Tree, settings: Settings, text: Vector) -> float:
    """|| A A^T - I ||_F^2 of a text."""
    weights = _matrix(params, text)[0]
    return sum(
        (float(one @ other) - (i == j)) ** 2
        for i, one in enumerate(weights)
        for j, other in enumerate(weights)
    )


def _matrix(params: Tree, text: Vector) -> tuple[list[Vector], list[Vector]]:
    """A and M of a text, row by row; of none, no weights and zeros."""
    states, ends = _read(params["reader"], text)
    hops = params["attention"]["w_hops"]["kernel"]
    if not states:
        return [np.zeros(0)] * hops.shape[1], [np.zeros_like(ends)] * hops.shape[1]
    inner = [np.tanh(state @ params["attention"]["w_hidden"]["kernel"]) for state in states]
    weights = [parts.softmax(scores) for scores in (inner @ hops).T]
    return weights, [parts.mean_of(weight, states) for weight in weights]


@of_each_token
def bilstm_tagger(params: Tree, settings: Settings, text: Vector) -> np.ndarray:
    """Numbers of every token: a layer of W x + b over the states of n layers."""
    states, _ = _read(params["reader"], text)
    for above in range(settings.get("layers", 1) - 1):
        states, _ = parts.both_ways(params[f"above_{above}"], states)
    return affine(params["out"], np.array(states))
