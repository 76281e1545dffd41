"""The pointer-generator with coverage, by section 2 of its paper; input feeding and the first state
by the authors' code.
"""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import (
    Tree,
    Vector,
    affine,
    both_ways,
    inputs,
    lstm,
    mean_of,
    sigmoid,
    softmax,
)


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
            x = affine(params["of_word"], tables[0][token])
            x = x + context @ params["of_context"]["kernel"]
            state = lstm(params, state, inputs(params, x))
            s = state[1]
            a = _attend(
                params["attention"]["score"],
                s,
                annotations,
                coverage if settings.get("coverage", "keys") == "keys" else None,
            )
            context = mean_of(a, annotations)
            p_gen = sigmoid(affine(params["gate"], np.concatenate([context, s, x])))[0]
            read_out = affine(params["read_out"], np.concatenate([s, context]))
            p_vocab = softmax(affine(params["out"], read_out))
            p = p_gen * p_vocab
            for weight, word in zip(a, words, strict=True):
                p[word] += (1 - p_gen) * weight
            log_probs[b, t], attention[b, t, : len(words)] = np.log(p), a
            again[b, t] = np.minimum(a, coverage).sum()
            coverage = coverage + a
    return log_probs, attention, again


def _read(params: Tree, words: list[Vector]) -> tuple[list[Vector], tuple[Vector, ...]]:
    """Annotations [forward ; backward] of every word, and the decoder's first state (c, h)."""
    annotations, ends = both_ways(params["reader"], words)
    first = (
        np.maximum(0.0, affine(params[name], np.concatenate(halves)))
        for name, halves in zip(("first_cell", "first_state"), zip(*ends, strict=True), strict=True)
    )
    return annotations, (*first,)


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
