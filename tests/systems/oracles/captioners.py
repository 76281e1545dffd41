"""Systems that write a text for an image, given what they look at: regions or places, [B,L,D]; one
that is all zeros is padding.
"""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import (
    Tree,
    Vector,
    additive,
    additive_scores,
    affine,
    lstm,
    sigmoid,
)
from tests.systems.oracles.transformer import transformer


def show_attend_tell(
    params: Tree, settings: dict[str, Any], regions: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Xu et al. 2015, section 3.1, with the tanh of the authors' code; soft attention, or at the
    best place alone ("straight_through", "hard" without samples).
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    hard = settings["attention"].get("alignment", {"name": "softmax"})["name"] != "softmax"
    gate = settings.get("gate", "scalar")
    unit = {"cell": params["cell"], "of_input": params["of_word"]}
    for b in range(len(regions)):
        places = _real(regions[b])
        mean = sum(places) / len(places)
        c, h = (np.tanh(affine(params[f"first_{name}"], mean)) for name in ("cell", "state"))
        for t, token in enumerate(target_in[b]):
            word = params["embed_target"]["embedding"][token]
            if hard:
                z = places[additive_scores(params["attention"]["score"], h, places).argmax()]
            else:
                z = additive(params["attention"], h, places)
            beta = 1.0 if gate == "none" else sigmoid(affine(params["selector"], h))
            z = beta * z
            given = word @ params["of_word"]["kernel"]["kernel"]
            c, h = lstm(unit, (c, h), given + z @ params["of_context"]["kernel"])
            deep = word + affine(params["out_state"], h) + z @ params["out_context"]["kernel"]
            logits[b, t] = affine(params["out"], np.tanh(deep))
    return logits


def top_down(
    params: Tree, settings: dict[str, Any], regions: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Anderson et al. 2018, section 3.2.1: the query is the current state of the first LSTM."""
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    looking = {"cell": params["looking_cell"], "of_input": params["of_word"]}
    writing = {"cell": params["writing_cell"], "of_input": params["of_context"]}
    width = len(params["looking_cell"]["past"])
    for b in range(len(regions)):
        places = _real(regions[b])
        of_mean = sum(places) / len(places) @ params["of_mean"]["kernel"]
        c1, h1, c2, h2 = (np.zeros(width) for _ in range(4))
        for t, token in enumerate(target_in[b]):
            word = params["embed_target"]["embedding"][token]
            given = word @ params["of_word"]["kernel"]["kernel"] + of_mean
            c1, h1 = lstm(looking, (c1, h1), given + h2 @ params["of_writing"]["kernel"])
            seen = additive(params["attention"], h1, places)
            given = seen @ params["of_context"]["kernel"]["kernel"]
            c2, h2 = lstm(writing, (c2, h2), given + h1 @ params["of_looking"]["kernel"])
            logits[b, t] = affine(params["out"], h2)
    return logits


def captioning_transformer(
    params: Tree, settings: dict[str, Any], regions: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """The oracle of the Transformer, whose source are words with the embeddings a W_f + b_f; what it
    adds to words of a source for their positions is taken off before.
    """
    logits = []
    for b in range(len(regions)):
        x = np.array([affine(params["of_features"], one) for one in _real(regions[b])])
        width = x.shape[1]
        angles = [
            [place / 10000.0 ** (2 * (column // 2) / width) for column in range(width)]
            for place in range(len(x))
        ]
        added = np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))
        table = np.concatenate([np.zeros((1, width)), x - added])
        own = {**params, "embed_source": {"embedding": table}}
        how = {**settings, "scaled_embedding": False, "share": settings.get("share", "output")}
        source = np.arange(1, len(x) + 1)[None]
        logits.append(transformer(own, how, source, target_in[b : b + 1])[0])
    return np.array(logits)


def _real(regions: np.ndarray) -> list[Vector]:
    return [region for region in regions if region.any()]
