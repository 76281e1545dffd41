"""The conditional GRU, by section 2 of the Nematus paper."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, additive, affine, sigmoid


def cgru(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Sennrich et al. 2017; the parameters of z say which share of the state is new (the paper's,
    which is old, have the other sign).
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        annotations = _annotations(
            params["reader"],
            [params["embed_source"]["embedding"][word] for word in source[b][source[b] != 0]],
        )
        mean = sum(annotations) / len(annotations)
        s = np.tanh(affine(params["first_state"], mean))
        for i, token in enumerate(target_in[b]):
            y = params["embed_target"]["embedding"][token]
            between = _gru(
                params["before"]["past"],
                s,
                affine(params["of_word"], y),
            )
            c = additive(params["attention"], between, annotations)
            s = _gru(
                params["after"]["past"],
                between,
                affine(params["of_context"], c),
            )
            t = affine(params["out_state"], s)
            t = np.tanh(t + y @ params["out_word"]["kernel"] + c @ params["out_context"]["kernel"])
            logits[b, i] = affine(params["out"], t)
    return logits


def _annotations(reader: Tree, words: list[Vector]) -> list[Vector]:
    """[forward ; backward] of every word."""
    ways: list[list[Vector]] = []
    for layer, order in ((reader["forward"], words), (reader["backward"], words[::-1])):
        result = [np.zeros(len(layer["cell"]["past"]))]
        for x in order:
            result.append(
                _gru(
                    layer["cell"]["past"],
                    result[-1],
                    affine(layer["of_input"], x),
                )
            )
        ways.append(result[1:])
    return [np.concatenate(pair) for pair in zip(ways[0], ways[1][::-1], strict=True)]


def _gru(past: Vector, h: Vector, given: Vector) -> Vector:
    """r, z = sigma(.), n = tanh(W x + r * (U h)), h' = (1 - z) h + z n; `given` is W x + b for
    r, z, n.
    """
    of_r, of_z, of_n = np.split(given, 3)
    u_r, u_z, u_n = np.split(past, 3, axis=1)
    r, z = sigmoid(of_r + h @ u_r), sigmoid(of_z + h @ u_z)
    return (1.0 - z) * h + z * np.tanh(of_n + r * (h @ u_n))
