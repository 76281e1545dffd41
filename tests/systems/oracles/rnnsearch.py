"""RNNsearch, by the appendix of its paper."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import (
    Tree,
    Vector,
    additive,
    affine,
    both_ways,
    inputs,
    lstm,
    passed,
)


def rnnsearch(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Bahdanau, Cho, Bengio 2015, appendix A; the output sees s_i (section 3) or s_{i-1}
    (appendix), as `settings["readout"]` says.

    "released", the authors' code: s_{i-1} has read y_{i-1} and c_{i-1} when attention and output
    see it.
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    unit = {"cell": params["cell"], "of_input": params["of_word"]}
    for b in range(len(source)):
        annotations, end = _read(params, source[b][source[b] != 0])
        first = np.tanh(end @ params["first_state"]["kernel"])  # s_0 = tanh(W_s h_1 from the right)
        state = np.zeros_like(first), first  # of the GRU and the tanh RNN h alone counts
        late, context = settings.get("readout") == "released", None
        for i, token in enumerate(target_in[b]):
            word, previous = params["embed_target"]["embedding"][token], state
            of_word = inputs(unit, word)
            if late and context is not None:
                given = of_word + context @ params["of_context"]["kernel"]
                previous = state = lstm(unit, previous, given)
            context = additive(params["attention"], previous[1], annotations)
            if not late:
                given = of_word + context @ params["of_context"]["kernel"]
                state = lstm(unit, previous, given)
            seen = (previous if settings.get("readout") == "previous" else state)[1]
            units = affine(params["out_state"], seen) + word @ params["out_word"]["kernel"]
            units = units + context @ params["out_context"]["kernel"]
            hidden = np.array([max(units[2 * k], units[2 * k + 1]) for k in range(len(units) // 2)])
            logits[b, i] = affine(params["out"], hidden)
    return logits


def _read(params: Tree, words: np.ndarray) -> tuple[list[Vector], Vector]:
    """Annotations of the real words, [forward ; backward] each, and the backward state at the first
    word; of one direction, its states and the last of them.
    """
    embedded = [params["embed_source"]["embedding"][word] for word in words]
    if "of_input" in params["reader"]:
        states, (_, end) = passed(params["reader"], embedded)
        return states, end
    annotations, (_, (_, at_beginning)) = both_ways(params["reader"], embedded)
    return annotations, at_beginning
