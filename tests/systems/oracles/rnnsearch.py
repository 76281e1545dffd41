"""RNNsearch, by the appendix of its paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, additive, sigmoid


def rnnsearch(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Bahdanau, Cho, Bengio 2015, appendix A; the output sees s_i (section 3) or s_{i-1}
    (appendix), as `settings["readout"]` says.

    "released", the authors' code: s_{i-1} has read y_{i-1} and c_{i-1} when attention and output
    see it.
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        annotations, backward_at_first = _read_both_ways(params, source[b][source[b] != 0])
        state = np.tanh(
            backward_at_first @ params["first_state"]["kernel"]
        )  # s_0 = tanh(W_s h_1 from the right)
        late, context = settings.get("readout") == "released", None
        for i, token in enumerate(target_in[b]):
            word, previous = params["embed_target"]["embedding"][token], state
            of_word = word @ params["of_word"]["kernel"] + params["of_word"]["bias"]
            if late and context is not None:
                previous = state = _gru(
                    params["cell"], previous, of_word + context @ params["of_context"]["kernel"]
                )
            context = additive(params["attention"], previous, annotations)
            if not late:
                state = _gru(
                    params["cell"], previous, of_word + context @ params["of_context"]["kernel"]
                )
            seen = previous if settings.get("readout") == "previous" else state
            units = seen @ params["out_state"]["kernel"] + params["out_state"]["bias"]
            units = (
                units
                + word @ params["out_word"]["kernel"]
                + context @ params["out_context"]["kernel"]
            )
            hidden = np.array([max(units[2 * k], units[2 * k + 1]) for k in range(len(units) // 2)])
            logits[b, i] = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return logits


def _read_both_ways(params: Tree, words: np.ndarray) -> tuple[list[Vector], Vector]:
    """Annotations of the real words, [forward ; backward] each, and the backward state at the first
    word.
    """
    embedded = [params["embed_source"]["embedding"][word] for word in words]
    states: dict[str, list[Vector]] = {}
    for direction, order in (("forward", embedded), ("backward", embedded[::-1])):
        layer = params["reader"][direction]
        state, found = np.zeros(len(layer["cell"]["candidate"])), []
        for x in order:
            state = _gru(
                layer["cell"], state, x @ layer["of_input"]["kernel"] + layer["of_input"]["bias"]
            )
            found.append(state)
        states[direction] = found
    states["backward"].reverse()
    return [
        np.concatenate(pair) for pair in zip(states["forward"], states["backward"], strict=True)
    ], states["backward"][0]


def _gru(cell: Tree, state: Vector, inputs: Vector) -> Vector:
    """r, z = sigma(.), n = tanh(W x + U (r * s) + C c), s' = (1 - z) s + z n; `inputs` = all that
    does not depend on s, for r, z, n.
    """
    width = len(state)
    of_r, of_z, of_n = inputs[:width], inputs[width : 2 * width], inputs[2 * width :]
    r = sigmoid(of_r + state @ cell["gates"][:, :width])
    z = sigmoid(of_z + state @ cell["gates"][:, width:])
    n = np.tanh(of_n + (r * state) @ cell["candidate"])
    return (1.0 - z) * state + z * n
