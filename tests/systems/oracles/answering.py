"""Systems that answer questions about images, by their papers: one question, one place, one word at
a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.attention.oracles import ORACLES as MECHANISMS
from tests.attention.oracles import part
from tests.layers.oracles import feed_forward
from tests.systems.oracles.parts import (
    Tree,
    Vector,
    additive,
    affine,
    normalised,
    passed,
    placed,
    sigmoid,
    softmax,
)
from tests.systems.oracles.vision import cnn_features

Answer = Callable[[Tree, dict[str, Any], list[Vector], np.ndarray], Vector]


def _asked(
    params: Tree, settings: dict[str, Any], images: np.ndarray, questions: np.ndarray, one: Answer
) -> np.ndarray:
    """Logits of every question that has a word, else zeros; `one` is given the places of the image
    and the ids of the question.
    """
    result = []
    for image, row in zip(images, questions, strict=True):
        places = _places(params, settings, image)
        result.append(one(params, settings, places, row[row != 0]) if row.any() else None)
    nothing = np.zeros_like(next(logits for logits in result if logits is not None))
    return np.array([nothing if logits is None else logits for logits in result])


def _places(params: Tree, settings: dict[str, Any], image: np.ndarray) -> list[Vector]:
    """Row by row, each with its column and its row from -1 to 1 if asked for."""
    features = cnn_features(params["backbone"], settings["backbone"], image)
    height, width, _ = features.shape
    result = []
    for i in range(height):
        for j in range(width):
            where = [2 * j / (width - 1) - 1, 2 * i / (height - 1) - 1]
            more = where if settings.get("coordinates", True) else []
            result.append(np.concatenate([features[i, j], more]))
    return result


def _read(params: Tree, words: list[Vector]) -> list[Vector]:
    """The states of a recurrent layer."""
    return passed(params["reader"], words)[0]


def _embedded(params: Tree, ids: np.ndarray) -> list[Vector]:
    return [params["embed"]["embedding"][one] for one in ids]


def cnn_lstm(
    params: Tree, settings: dict[str, Any], images: np.ndarray, questions: np.ndarray
) -> np.ndarray:
    """Santoro et al. 2017: W_2 relu(W_1 [v ; q])."""

    def one(params: Tree, settings: Any, places: list[Vector], ids: np.ndarray) -> Vector:
        flat = settings.get("pooling", "mean") == "flat"
        seen = np.concatenate(places) if flat else sum(places) / len(places)
        both = np.concatenate([seen, _read(params, _embedded(params, ids))[-1]])
        return affine(
            params["verdict"]["last"], np.maximum(affine(params["verdict"]["first"], both), 0)
        )

    return _asked(params, settings, images, questions, one)


def stacked_attention(
    params: Tree, settings: dict[str, Any], images: np.ndarray, questions: np.ndarray
) -> np.ndarray:
    """Yang et al. 2016, equations 15 to 22."""

    def one(params: Tree, settings: Any, places: list[Vector], ids: np.ndarray) -> Vector:
        seen = [np.tanh(affine(params["of_place"], place)) for place in places]
        u = _read(params, _embedded(params, ids))[-1]
        for hop in range(settings["hops"]):
            u = u + additive(params[f"attention_{hop}"], u, seen)
        return affine(params["out"], u)

    return _asked(params, settings, images, questions, one)


def bottom_up(
    params: Tree, settings: dict[str, Any], images: np.ndarray, questions: np.ndarray
) -> np.ndarray:
    """Anderson et al. 2018, section 3.3, and the product of the best known implementation."""

    def gt(layer: Tree, x: Vector) -> Vector:
        if settings.get("activation") == "relu":
            return np.maximum(affine(layer["of_value"], x), 0)
        return np.tanh(affine(layer["of_value"], x)) * sigmoid(affine(layer["of_gate"], x))

    def joint(params: Tree, place: Vector, q: Vector) -> Vector:
        if settings.get("joint") == "product":
            of_place = np.maximum(affine(params["joint_place"], place), 0)
            return of_place * np.maximum(affine(params["joint_question"], q), 0)
        return gt(params["joint_layer"], np.concatenate([place, q]))

    def one(params: Tree, settings: Any, places: list[Vector], ids: np.ndarray) -> Vector:
        q = _read(params, _embedded(params, ids))[-1]
        if settings.get("normalised", True):
            places = [place / np.sqrt((place**2).sum()) for place in places]
        scores = np.array([params["query"] @ joint(params, place, q) for place in places])
        seen = sum(a * place for a, place in zip(softmax(scores), places, strict=True))
        h = gt(params["of_question"], q) * gt(params["of_image"], seen)  # type: ignore[arg-type]
        return affine(params["out"], gt(params["hidden_layer"], h))

    return _asked(params, settings, images, questions, one)


def co_attention(
    params: Tree, settings: dict[str, Any], images: np.ndarray, questions: np.ndarray
) -> np.ndarray:
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
        return softmax(seen @ own["image_query"]) @ v, softmax(said @ own["question_query"]) @ q

    def one(params: Tree, settings: Any, places: list[Vector], ids: np.ndarray) -> Vector:
        v = np.array([np.tanh(affine(params["of_place"], place)) for place in places])
        levels = {"word": _embedded(params, ids)}
        levels["phrase"] = phrases(levels["word"]) if "phrases" in params else []
        levels["sentence"] = _read(params, levels["phrase"]) if "reader" in params else []
        before: list[Vector] = []
        for level in settings.get("levels", ("word", "phrase", "sentence")):
            seen, said = looked(params[level], v, np.array(levels[level]))
            joined = np.concatenate([said + seen, *before])
            before = [np.tanh(affine(params[f"joined_{level}"], joined))]
        return affine(params["out"], before[0])

    return _asked(params, settings, images, questions, one)


def cross_attention(
    params: Tree, settings: dict[str, Any], images: np.ndarray, questions: np.ndarray
) -> np.ndarray:
    """The decoder block of Vaswani et al. 2017 without a causal mask, over the beginning of a text
    and a question, and encoder blocks over places.
    """

    def layer(
        own: Tree, x: np.ndarray, slots: dict[str, tuple[str, Any]], grid: Any = None
    ) -> np.ndarray:
        def looking(slot: str, source: Any) -> Callable[[np.ndarray], np.ndarray]:
            fields = dict(part(settings, slot, "")[1])
            if fields.get("positions") == "rope_2d":
                fields["positions"] = {"name": "rope_2d", "places": grid}
            name = "cross_attention" if slot.startswith("cross") else "self_attention"

            def look(y: np.ndarray) -> np.ndarray:
                keys = y if source is None else source
                mask = np.ones((1, len(y), len(keys)), bool)
                result = MECHANISMS["multihead"](own[name], fields, y[None], keys[None], mask)
                return np.asarray(result[0][0])

            return look

        functions: dict[str, Any] = {
            around: looking(slot, source) for around, (slot, source) in slots.items()
        }
        kind = part(settings, "feed_forward", "gelu_tanh")[0]
        functions["feed_forward"] = lambda y: feed_forward(kind, own["feed_forward"], y)
        return placed(own, settings, x, functions, "layer_norm")

    def one(params: Tree, settings: Any, places: list[Vector], ids: np.ndarray) -> Vector:
        m = np.array([affine(params["of_place"], place) for place in places])
        m = m + params["image_positions"]["table"][: len(m)]
        wide = sum(place[-1] == places[0][-1] for place in places)  # places of one row
        grid = [(number // wide, number % wide) for number in range(len(places))]
        for number in range(settings["image_layers"]):
            m = layer(params[f"image_{number}"], m, {"self": ("image_attention", None)}, grid)
        x = np.array(_embedded(params, np.concatenate([[1], ids])))
        x = x + params["positions"]["table"][: len(x)]
        for number in range(settings["layers"]):
            slots = {"self": ("question_attention", None), "cross": ("cross_attention", m)}
            x = layer(params[f"question_{number}"], x, slots)
        return affine(params["out"], normalised(params["top"], settings, x, "layer_norm")[0])

    return _asked(params, settings, images, questions, one)
