"""The encoder-only Transformer: BERT and its relatives."""

from math import erf
from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, affine, blocks, embedded, normalised


def encoder(
    params: Tree, settings: dict[str, Any], tokens: np.ndarray, types: np.ndarray | None = None
) -> np.ndarray:
    """Numbers of every token; `types` says which of the texts of its row a token belongs to."""
    types = np.zeros_like(tokens) if types is None else types
    table = params["embed"]["embedding"]
    result = np.zeros((*tokens.shape, len(params["out"]["bias"])))
    for row, kinds, numbers in zip(tokens, types, result, strict=True):
        read = row[row != 0]
        if not len(read):
            continue
        states = _states(params, settings, read, kinds[: len(read)])
        if settings.get("head", "linear") == "linear":
            numbers[: len(read)] = affine(params["out"], states)
        else:
            inner = affine(params["out"]["inner"], states)
            gelu = np.array([[x / 2 * (1 + erf(x / 2**0.5)) for x in one] for one in inner])
            normed = normalised(params["out"]["normalisation"], settings, gelu, "layer_norm")
            numbers[: len(read)] = normed @ table.T + params["out"]["bias"]
    return result


def encoder_classifier(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Logits of texts or pairs: one row of id 1, the first text, the second."""
    result = []
    for number in range(len(source)):
        texts = [source[number]] + ([] if target is None else [target[number]])
        texts = [text[text != 0] for text in texts]
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
                vector = np.tanh(affine(params["pooler"], states[0]))
        result.append(affine(params["out"], vector))
    return np.stack(result)


_BERT: dict[str, Any] = {"norm": "post", "head": "tied", "pooling": "pooler"}


def bert(params: Tree, settings: dict[str, Any], *read: np.ndarray) -> np.ndarray:
    """Logits of every token."""
    return encoder(params, {**_BERT, **settings}, *read)


def bert_classifier(params: Tree, settings: dict[str, Any], *texts: np.ndarray) -> np.ndarray:
    """Logits of texts or pairs."""
    return encoder_classifier(params, {**_BERT, **settings}, *texts)


def _states(params: Tree, settings: dict[str, Any], read: np.ndarray, kinds: Any) -> np.ndarray:
    """The states [T,d] of a text without padding."""
    x = embedded(params, settings, read)
    if "embed_types" in params:
        x = x + params["embed_types"]["embedding"][kinds]
    if "embed_norm" in params:
        x = normalised(params["embed_norm"], settings, x, "layer_norm")
    return blocks(params, settings, x, "gelu")
