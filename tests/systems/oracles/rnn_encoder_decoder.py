"""The RNN Encoder-Decoder, by the appendix of its paper."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, affine, sigmoid


def rnn_encoder_decoder(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Cho et al. 2014, appendix A.1, by its letters: z is the share of the *old* state, so all that
    leads to our z is negated.
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        layer = params["reader"]
        state = np.zeros(len(layer["cell"]["candidate"]))
        for token in source[b][source[b] != 0]:
            inputs = affine(layer["of_input"], params["embed_source"]["embedding"][token])
            state = _cho_encoder(layer["cell"], state, inputs)
        c = np.tanh(state @ params["summary"]["kernel"])
        state = np.tanh(c @ params["first_state"]["kernel"])
        for i, token in enumerate(target_in[b]):
            word = params["embed_target"]["embedding"][token]
            of_word = affine(params["of_word"], word)
            state = _cho_decoder(
                params["cell"]["past"], state, of_word, c @ params["of_context"]["kernel"]
            )
            units = affine(params["out_state"], state) + word @ params["out_word"]["kernel"]
            units = units + c @ params["out_context"]["kernel"]
            hidden = np.array([max(units[2 * k], units[2 * k + 1]) for k in range(len(units) // 2)])
            logits[b, i] = affine(params["out"], hidden)
    return logits


def _cho_encoder(cell: Tree, state: Vector, inputs: Vector) -> Vector:
    """h' = z h + (1 - z) tanh(W x + U (r * h))."""
    width = len(state)
    r = sigmoid(inputs[:width] + state @ cell["gates"][:, :width])
    z = sigmoid(-inputs[width : 2 * width] - state @ cell["gates"][:, width:])
    return z * state + (1.0 - z) * np.tanh(inputs[2 * width :] + (r * state) @ cell["candidate"])


def _cho_decoder(past: np.ndarray, state: Vector, of_word: Vector, of_context: Vector) -> Vector:
    """h' = z h + (1 - z) tanh(W y + r * (U h + C c)): the reset gate closes the way of the
    context too.
    """
    width = len(state)
    of_r, of_z, of_n = (slice(k * width, (k + 1) * width) for k in range(3))
    r = sigmoid(of_word[of_r] + state @ past[:, of_r] + of_context[of_r])
    z = sigmoid(-of_word[of_z] - state @ past[:, of_z] - of_context[of_z])
    return z * state + (1.0 - z) * np.tanh(
        of_word[of_n] + r * (state @ past[:, of_n] + of_context[of_n])
    )
