"""Recurrent language models, one text at a time."""

import numpy as np

from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_token

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
