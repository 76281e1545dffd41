"""GNMT, by section 3 of its paper."""

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
    lstm_start,
    passed,
)

State = tuple[Vector, Vector]


def gnmt(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Wu et al. 2016; `settings` has the depths, "query" and "first" as the system; the score is
    additive.
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    asks_before = settings.get("query", "previous") == "previous"
    for b in range(len(source)):
        annotations, last = _read(params, settings, source[b][source[b] != 0])
        layers = [
            params["lowest"],
            *(params[f"above_{number}"] for number in range(settings["decoder_layers"] - 1)),
        ]
        states = (
            last if settings.get("first") == "encoder" else [lstm_start(layer) for layer in layers]
        )
        context = np.zeros(len(annotations[0]))
        for t, word in enumerate(target_in[b]):
            embedded = params["embed_target"]["embedding"][word]
            if asks_before:
                context = additive(params["attention"], states[0][1], annotations)
            given = inputs(layers[0], embedded) + context @ params["of_context"]["kernel"]
            following = [lstm(layers[0], states[0], given)]
            if not asks_before:
                context = additive(params["attention"], following[0][1], annotations)
            x = following[0][1]
            for number in range(1, len(layers)):
                given = inputs(layers[number], np.concatenate([x, context]))
                state = lstm(layers[number], states[number], given)
                following.append(state)
                x = state[1] + x if number + 1 in summed(settings) else state[1]
            states = following
            logits[b, t] = affine(params["out"], x)
    return logits


def summed(settings: dict[str, Any]) -> range:
    """The layers, counted from 1, whose input is added to their output."""
    return range(3, 100) if settings.get("residual", True) else range(0)


def _read(
    params: Tree, settings: dict[str, Any], words: np.ndarray
) -> tuple[list[Vector], list[State]]:
    """The annotations, and the last state of every layer, of the lowest that of its backward
    half.
    """
    x = [params["embed_source"]["embedding"][word] for word in words]
    if settings.get("directions", 2) == 1:
        x, at_first = passed(params["both_ways"], x)
    else:
        x, (_, at_first) = both_ways(params["both_ways"], x)
    last = [at_first]
    for number in range(2, settings["encoder_layers"] + 1):
        y, state = passed(params["reader"][f"layer_{number - 2}"], x)
        x = (
            [one + below for one, below in zip(y, x, strict=True)]
            if number in summed(settings)
            else y
        )
        last.append(state)
    return x, last
