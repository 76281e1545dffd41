"""The language models of Daniluk et al. 2017 that attend, one word at a time."""

from typing import Any

import numpy as np

from tests.systems.oracles.lstm_lm import outputs, texts
from tests.systems.oracles.parts import Tree, Vector, additive_scores, affine, mean_of, softmax

PARTS = {"single": 1, "key_value": 2, "key_value_predict": 3}


def attention_lm(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """Equations 1-10 of the paper; `settings["piece"]` words are read at once, and only with
    `carry` "window" is seen what was before.
    """
    logits = np.zeros((*tokens.shape, params["out"]["kernel"].shape[1]))
    piece = settings.get("piece", tokens.shape[1])
    for b, text in enumerate(texts(tokens)):
        states = outputs(params, text)
        for t, state in enumerate(states):
            first = max(0, t - settings["window"])
            if settings.get("carry") == "state":
                first = max(first, t - t % piece)
            star = _star(params, settings["attention"]["name"], state, states[first:t])
            logits[b, t] = affine(params["out"], star)
    return logits


def _star(params: Tree, kind: str, state: Vector, window: list[Vector]) -> Vector:
    """h*_t of a state and those before it."""
    count = PARTS[kind]
    parts = np.split(state, count)
    # of one part, of two or of three: what asks is the first, what predicts the last
    key, own = (parts[0], parts[-1])
    taken = min(1, count - 1)  # what is taken of an earlier state is its second part, if it has one
    earlier = [np.split(one, count) for one in window]
    result = np.zeros_like(own)
    if earlier:
        scores = additive_scores(params["attention"]["score"], key, [one[0] for one in earlier])
        result = mean_of(softmax(scores), [one[taken] for one in earlier])
    merge = params if kind == "single" else params["attention"]
    return np.tanh(result @ merge["of_found"]["kernel"] + own @ merge["of_own"]["kernel"])
