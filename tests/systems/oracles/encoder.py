"""The encoder-only Transformer: BERT and its relatives."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

from tests.attention.oracles import ORACLES as MECHANISMS
from tests.attention.oracles import part
from tests.layers.oracles import feed_forward
from tests.systems.oracles.parts import Tree, in_layer, normalised, placed


def encoder(
    params: Tree, settings: dict[str, Any], tokens: np.ndarray, types: np.ndarray | None = None
) -> np.ndarray:
    """Numbers of every token; `types` says which of the texts of its row a token belongs to."""
    types = np.zeros_like(tokens) if types is None else types
    table = params["embed"]["embedding"]
    found = np.zeros((*tokens.shape, len(params["out"]["bias"])))
    for row, kinds, numbers in zip(tokens, types, found, strict=True):
        read = row[row != 0]
        if not len(read):
            continue
        states = _states(params, settings, read, kinds[: len(read)])
        if settings.get("head", "linear") == "linear":
            numbers[: len(read)] = states @ params["out"]["kernel"] + params["out"]["bias"]
        else:
            inner = states @ params["out"]["inner"]["kernel"] + params["out"]["inner"]["bias"]
            gelu = np.array([[x / 2 * (1 + erf(x / 2**0.5)) for x in one] for one in inner])
            normed = normalised(params["out"]["normalisation"], settings, gelu, "layer_norm")
            numbers[: len(read)] = normed @ table.T + params["out"]["bias"]
    return found


def encoder_classifier(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Logits of texts or pairs: one row of id 1, the first text, the second."""
    found = []
    for number in range(len(source)):
        texts = [source[number]] + ([] if target is None else [target[number]])
        texts = [one[one != 0] for one in texts]
        row = np.concatenate([[1], *texts])
        kinds = np.repeat([0, 1], [1 + len(texts[0]), len(row) - 1 - len(texts[0])])
        states = _states(params, settings, row, kinds)
        match settings.get("pooling", "mean"):
            case "mean":
                vector = states.mean(axis=0)
            case "max":
                vector = states.max(axis=0)
            case "first":
                vector = states[0]
            case "pooler":
                vector = np.tanh(states[0] @ params["pooler"]["kernel"] + params["pooler"]["bias"])
        found.append(vector @ params["out"]["kernel"] + params["out"]["bias"])
    return np.stack(found)


_BERT: dict[str, Any] = {"norm": "post", "head": "tied", "pooling": "pooler"}


def bert(params: Tree, settings: dict[str, Any], *read: np.ndarray) -> np.ndarray:
    """Logits of every token."""
    return encoder(params, {**_BERT, **settings}, *read)


def bert_classifier(params: Tree, settings: dict[str, Any], *texts: np.ndarray) -> np.ndarray:
    """Logits of texts or pairs."""
    return encoder_classifier(params, {**_BERT, **settings}, *texts)


def _states(params: Tree, settings: dict[str, Any], read: np.ndarray, kinds: Any) -> np.ndarray:
    """The states [T,d] of a text without padding."""
    x = params["embed"]["embedding"][read]
    x = x * np.sqrt(x.shape[1]) if settings.get("scaled_embedding") else x
    if "positions" in params:
        places = params["positions"]["table"][: len(x)]
        concatenated = settings.get("position_width", 0)
        x = np.concatenate([x, places], axis=1) if concatenated else x + places
    if "embed_types" in params:
        x = x + params["embed_types"]["embedding"][kinds]
    if "embed_norm" in params:
        x = normalised(params["embed_norm"], settings, x, "layer_norm")
    distance = np.abs(np.arange(len(x))[:, None] - np.arange(len(x)))
    for number in range(settings["layers"]):
        rule, fields = part(in_layer(settings, number), "visibility", "full")
        mask = distance < fields["width"] if rule == "window" else distance >= 0
        own = params.get(f"layer_{number}", {})
        name, fields = part(in_layer(settings, number), "attention", "multihead")

        def attend(y: np.ndarray, mask: Any = mask) -> np.ndarray:
            found = MECHANISMS[name](own["attention"], fields, y[None], y[None], mask[None])  # noqa: B023
            return found[0][0]

        def forward(y: np.ndarray) -> np.ndarray:
            return feed_forward(part(settings, "feed_forward", "gelu")[0], own["feed_forward"], y)  # noqa: B023

        functions = {
            around: function
            for around, function in (("attention", attend), ("feed_forward", forward))
            if part(in_layer(settings, number), around, "")[0] != "none"
        }
        x = placed(own, settings, x, functions, "layer_norm")
    return normalised(params["top"], settings, x, "layer_norm") if "top" in params else x
