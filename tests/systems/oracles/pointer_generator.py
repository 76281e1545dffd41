"""The pointer-generator with coverage, by section 2 of its paper; input feeding and the first state
by the authors' code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, inputs, lstm, lstm_start, sigmoid, softmax


def pointer_generator(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """See, Liu, Manning 2017: log P(w) of the final distribution; see `looks` for the rest."""
    return looks(params, settings, source, target_in)[0]


def looks(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities [B,T,V], attention [B,T,S] (zeros at padding) and the coverage loss [B,T]
    of every step.
    """
    vocabulary = params["out"]["kernel"].shape[1]
    log_probs = np.zeros((*target_in.shape, vocabulary))
    attention = np.zeros((*target_in.shape, source.shape[1]))
    again = np.zeros(target_in.shape)
    tables = (
        params["embed_target"]["embedding"],
        params.get("embed_source", params["embed_target"])["embedding"],
    )
    for b in range(len(source)):
        words = source[b][source[b] != 0]
        annotations, state = _read(params, [tables[1][word] for word in words])
        context, coverage = np.zeros_like(annotations[0]), np.zeros(len(words))
        for t, token in enumerate(target_in[b]):
            x = (
                _dense(params["of_word"], tables[0][token])
                + context @ params["of_context"]["kernel"]
            )
            state = lstm(params, state, inputs(params, x))
            s = state[1]
            a = _attend(
                params["attention"]["score"],
                s,
                annotations,
                coverage if settings.get("coverage", "keys") == "keys" else None,
            )
            context = sum(weight * one for weight, one in zip(a, annotations, strict=True))
            p_gen = sigmoid(_dense(params["gate"], np.concatenate([context, s, x])))[0]
            p_vocab = softmax(
                _dense(params["out"], _dense(params["read_out"], np.concatenate([s, context])))
            )
            p = p_gen * p_vocab
            for weight, word in zip(a, words, strict=True):
                p[word] += (1 - p_gen) * weight
            log_probs[b, t], attention[b, t, : len(words)] = np.log(p), a
            again[b, t] = sum(
                min(weight, before) for weight, before in zip(a, coverage, strict=True)
            )
            coverage = coverage + a
    return log_probs, attention, again


def _dense(layer: Tree, x: Vector) -> Vector:
    return x @ layer["kernel"] + layer["bias"]


def _read(params: Tree, words: list[Vector]) -> tuple[list[Vector], tuple[Vector, Vector]]:
    """Annotations [forward ; backward] of every word, and the decoder's first state (c, h)."""
    ways, ends = [], []
    for layer, order in (
        (params["reader"]["forward"], words),
        (params["reader"]["backward"], words[::-1]),
    ):
        state, found = lstm_start(layer), []
        for word in order:
            state = lstm(layer, state, inputs(layer, word))
            found.append(state[1])
        ways.append(found)
        ends.append(state)
    first = [
        np.maximum(0.0, _dense(params[name], np.concatenate([ends[0][i], ends[1][i]])))
        for i, name in enumerate(("first_cell", "first_state"))
    ]
    return [np.concatenate(pair) for pair in zip(ways[0], ways[1][::-1], strict=True)], (
        first[0],
        first[1],
    )


def _attend(score: Tree, s: Vector, annotations: list[Vector], coverage: Vector | None) -> Vector:
    """softmax over j of v . tanh(W_h h_j + W_s s + w_c c_j); the last row of the keys' matrix is
    w_c.
    """
    of_keys = score["w_key"]["kernel"]
    width, query = len(annotations[0]), s @ score["w_query"]["kernel"]
    scores = []
    for j, annotation in enumerate(annotations):
        inside = annotation @ of_keys[:width] + query
        if coverage is not None:
            inside = inside + coverage[j] * of_keys[width]
        scores.append(score["v"] @ np.tanh(inside))
    return softmax(np.array(scores))
