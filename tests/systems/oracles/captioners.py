"""Systems that write a text for an image, given what they look at: regions or places, [B,L,D]; one
that is all zeros is padding.
"""

import numpy as np

from tests.attention.position_oracles import sinusoid
from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_row
from tests.systems.oracles.transformers import transformer


@of_each_row
def show_attend_tell(
    params: Tree, settings: Settings, regions: np.ndarray, target_in: Vector
) -> list[Vector]:
    """Xu et al. 2015, section 3.1, with the tanh of the authors' code; soft attention, or at the
    best place alone ("straight_through", "hard" without samples).
    """
    hard = settings["attention"].get("alignment", {"name": "softmax"})["name"] != "softmax"
    places, logits = _real(regions), []
    mean = sum(places) / len(places)
    c, h = (np.tanh(affine(params[f"first_{name}"], mean)) for name in ("cell", "state"))
    for word in parts.embeddings(params["embed_target"], target_in):
        scores = parts.additive_scores(params["attention"]["score"], h, places)
        z = places[scores.argmax()] if hard else parts.mean_of(parts.softmax(scores), places)
        if settings.get("gate", "scalar") != "none":
            z = parts.sigmoid(affine(params["selector"], h)) * z
        given = affine(params["of_word"], word) + z @ params["of_context"]["kernel"]
        c, h = parts.cell_step(params["cell"], (c, h), given)
        deep = word + affine(params["out_state"], h) + z @ params["out_context"]["kernel"]
        logits.append(affine(params["out"], np.tanh(deep)))
    return logits


@of_each_row
def top_down(
    params: Tree, settings: Settings, regions: np.ndarray, target_in: Vector
) -> list[Vector]:
    """Anderson et al. 2018, section 3.2.1: the query is the current state of the first LSTM."""
    places, logits = _real(regions), []
    of_mean = sum(places) / len(places) @ params["of_mean"]["kernel"]
    nothing = np.zeros(len(params["looking_cell"]["past"]))
    looking = writing = nothing, nothing
    for word in parts.embeddings(params["embed_target"], target_in):
        given = affine(params["of_word"], word) + of_mean
        given = given + writing[1] @ params["of_writing"]["kernel"]
        looking = parts.cell_step(params["looking_cell"], looking, given)
        seen = parts.additive(params["attention"], looking[1], places)
        given = affine(params["of_context"], seen) + looking[1] @ params["of_looking"]["kernel"]
        writing = parts.cell_step(params["writing_cell"], writing, given)
        logits.append(affine(params["out"], writing[1]))
    return logits


@of_each_row
def captioning_transformer(
    params: Tree, settings: Settings, regions: np.ndarray, target_in: Vector
) -> np.ndarray:
    """The oracle of the Transformer, whose source are words with the embeddings a W_f + b_f; what it
    adds to words of a source for their positions is taken off before.
    """
    x = affine(params["of_features"], np.array(_real(regions)))
    added = [sinusoid(place, x.shape[1]) for place in range(len(x))]
    table = np.concatenate([np.zeros((1, x.shape[1])), x - added])
    own = {**params, "embed_source": {"embedding": table}}
    how = {**settings, "scaled_embedding": False, "share": settings.get("share", "output")}
    source = np.arange(1, len(x) + 1)
    return transformer(own, how, source[None], target_in[None])[0]


def _real(regions: np.ndarray) -> list[Vector]:
    return [region for region in regions if region.any()]
