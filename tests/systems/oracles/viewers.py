"""Systems that read images and texts, by their papers: those that answer questions, one question, one
place, one word at a time; and those that write a text, given what they look at: regions or places,
[B,L,D]; one that is all zeros is padding.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.attention.oracles import part
from tests.attention.position_oracles import sinusoid
from tests.layers.oracles import feed_forward
from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_row
from tests.systems.oracles.transformers import transformer
from tests.systems.oracles.vision import features


def of_each_question(
    answer: Callable[[Tree, Settings, list[Vector], Vector], Vector],
) -> Callable[..., np.ndarray]:
    """An oracle of batches, of one that is given the places of an image and the ids of a question;
    logits of every question that has a word, else zeros.
    """

    @functools.wraps(answer)
    def of_batch(
        params: Tree, settings: Settings, images: np.ndarray, questions: np.ndarray
    ) -> np.ndarray:
        found = {
            number: answer(params, settings, _places(params, settings, image), row[row != 0])
            for number, (image, row) in enumerate(zip(images, questions, strict=True))
            if row.any()
        }
        nothing = np.zeros_like(next(iter(found.values())))
        return np.array([found.get(number, nothing) for number in range(len(questions))])

    return of_batch


def _places(params: Tree, settings: Settings, image: np.ndarray) -> list[Vector]:
    """Row by row, each with its column and its row from -1 to 1 if asked for."""
    seen, result = features(params, settings, image), []
    height, width, _ = seen.shape
    for i, j in np.ndindex(height, width):
        where = [2 * j / (width - 1) - 1, 2 * i / (height - 1) - 1]
        more = where if settings.get("coordinates", True) else []
        result.append(np.concatenate([seen[i, j], more]))
    return result


def _read(params: Tree, words: list[Vector]) -> list[Vector]:
    """The states of a recurrent layer."""
    return parts.passed(params["reader"], words)[0]


@of_each_question
def cnn_lstm(params: Tree, settings: Settings, places: list[Vector], ids: Vector) -> Vector:
    """Santoro et al. 2017: W_2 relu(W_1 [v ; q])."""
    flat = settings.get("pooling", "mean") == "flat"
    seen = np.concatenate(places) if flat else sum(places) / len(places)
    both = np.concatenate([seen, _read(params, parts.embeddings(params["embed"], ids))[-1]])
    hidden = np.maximum(affine(params["verdict"]["first"], both), 0)
    return affine(params["verdict"]["last"], hidden)


@of_each_question
def stacked_attention(
    params: Tree, settings: Settings, places: list[Vector], ids: Vector
) -> Vector:
    """Yang et al. 2016, equations 15 to 22."""
    seen = [np.tanh(affine(params["of_place"], place)) for place in places]
    u = _read(params, parts.embeddings(params["embed"], ids))[-1]
    for hop in range(settings["hops"]):
        u = u + parts.additive(params[f"attention_{hop}"], u, seen)
    return affine(params["out"], u)


@of_each_question
def bottom_up(params: Tree, settings: Settings, places: list[Vector], ids: Vector) -> Vector:
    """Anderson et al. 2018, section 3.3, and the product of the best known implementation."""

    def gt(layer: Tree, x: Vector) -> Vector:
        if settings.get("activation") == "relu":
            return np.maximum(affine(layer["of_value"], x), 0)
        return np.tanh(affine(layer["of_value"], x)) * parts.sigmoid(affine(layer["of_gate"], x))

    def joint(params: Tree, place: Vector, q: Vector) -> Vector:
        if settings.get("joint") == "product":
            of_place = np.maximum(affine(params["joint_place"], place), 0)
            return of_place * np.maximum(affine(params["joint_question"], q), 0)
        return gt(params["joint_layer"], np.concatenate([place, q]))

    q = _read(params, parts.embeddings(params["embed"], ids))[-1]
    if settings.get("normalised", True):
        places = [place / np.sqrt((place**2).sum()) for place in places]
    scores = np.array([params["query"] @ joint(params, place, q) for place in places])
    seen = sum(a * place for a, place in zip(parts.softmax(scores), places, strict=True))
    h = gt(params["of_question"], q) * gt(params["of_image"], seen)  # type: ignore[arg-type]
    return affine(params["out"], gt(params["hidden_layer"], h))


@of_each_question
def co_attention(params: Tree, settings: Settings, places: list[Vector], ids: Vector) -> Vector:
    """Lu et al. 2016, equations 1 to 4 and 7, with columns of the paper as rows."""

    def phrases(words: list[Vector]) -> list[Vector]:
        result = []
        for t in range(len(words)):
            of_sizes = []
            for size in (1, 2, 3):
                window = [*words[t : t + size], *[np.zeros_like(words[0])] * size][:size]
                layer = params["phrases"][f"of_{size}"]
                of_sizes.append(np.tanh(affine(layer, np.concatenate(window))))
            result.append(np.max(of_sizes, axis=0))
        return result

    def looked(own: Tree, v: np.ndarray, q: np.ndarray) -> tuple[Vector, Vector]:
        c = np.tanh(q @ own["affinity"]["kernel"] @ v.T)
        of_v, of_q = v @ own["of_places"]["kernel"], q @ own["of_words"]["kernel"]
        seen, said = np.tanh(of_v + c.T @ of_q), np.tanh(of_q + c @ of_v)
        return parts.softmax(seen @ own["image_query"]) @ v, parts.softmax(
            said @ own["question_query"]
        ) @ q

    v = np.array([np.tanh(affine(params["of_place"], place)) for place in places])
    levels = {"word": parts.embeddings(params["embed"], ids)}
    levels["phrase"] = phrases(levels["word"]) if "phrases" in params else []
    levels["sentence"] = _read(params, levels["phrase"]) if "reader" in params else []
    before: list[Vector] = []
    for level in settings.get("levels", ("word", "phrase", "sentence")):
        seen, said = looked(params[level], v, np.array(levels[level]))
        joined = np.concatenate([said + seen, *before])
        before = [np.tanh(affine(params[f"joined_{level}"], joined))]
    return affine(params["out"], before[0])


@of_each_question
def cross_attention(params: Tree, settings: Settings, places: list[Vector], ids: Vector) -> Vector:
    """The decoder block of Vaswani et al. 2017 without a causal mask, over the beginning of a text
    and a question, and encoder blocks over places.
    """

    def layer(
        own: Tree, x: np.ndarray, slots: dict[str, tuple[str, Any]], grid: Any = None
    ) -> np.ndarray:
        functions: dict[str, Any] = {}
        for around, (slot, source) in slots.items():
            look = functools.partial(parts.looked, settings, slot, own[f"{around}_attention"])
            functions[around] = functools.partial(look, source=source, places=grid)
        kind = part(settings, "feed_forward", "gelu_tanh")[0]
        functions["feed_forward"] = lambda y: feed_forward(kind, own["feed_forward"], y)
        return parts.placed(own, settings, x, functions)

    m = np.array([affine(params["of_place"], place) for place in places])
    m = m + params["image_positions"]["table"][: len(m)]
    wide = sum(place[-1] == places[0][-1] for place in places)  # places of one row
    grid = [(number // wide, number % wide) for number in range(len(places))]
    for number in range(settings["image_layers"]):
        m = layer(params[f"image_{number}"], m, {"self": ("image_attention", None)}, grid)
    x = np.array(parts.embeddings(params["embed"], np.concatenate([[1], ids])))
    x = x + params["positions"]["table"][: len(x)]
    for number in range(settings["layers"]):
        slots = {"self": ("question_attention", None), "cross": ("cross_attention", m)}
        x = layer(params[f"question_{number}"], x, slots)
    return affine(params["out"], parts.normalised(params["top"], settings, x)[0])


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
