"""The N-gram RNN of Daniluk et al. 2017."""

from typing import Any

import numpy as np

from tests.systems.oracles.lstm_lm import outputs, texts
from tests.systems.oracles.parts import Tree, affine


def ngram_rnn(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """h*_t = tanh([h^1_t ; h^2_{t-1} ; ... ; h^{N-1}_{t-N+2}] W_N), with zeros before the text."""
    count = settings["order"] - 1
    logits = np.zeros((*tokens.shape, params["out"]["kernel"].shape[1]))
    for b, text in enumerate(texts(tokens)):
        states = [np.split(one, count) for one in outputs(params, text)]
        for t in range(len(states)):
            parts = [
                states[t - i][i] if t >= i else np.zeros_like(states[t][i]) for i in range(count)
            ]
            star = np.tanh(np.concatenate(parts) @ params["merge"]["kernel"])
            logits[b, t] = affine(params["out"], star)
    return logits
