"""Promises of every system that answers questions about images, as functions that raise
AssertionError; tiny ones, and what they read.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.protocol import MAPS
from attnlab.systems.vision.protocol import VisualAnswerer
from tests.systems.checks import check_heard
from tests.systems.classifiers import CLASSES, VOCABULARY
from tests.systems.classifiers import batch as texts
from tests.systems.tiny import drawn, entropy_of, fitted, make, named, once, wide

GRID, SHAPE = (3, 4), (6, 9, 3)  # places of the feature map of an image
_BACKBONE = {"name": "cnn", "widths": (4,), "layers": 1, "kernel": 3, "pooling": "mean"}
_READ = {"backbone": _BACKBONE, "embedding": 5, "width": 6}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 5}}
_DOT = {"name": "single", "score": "dot"}
_HEADS = {"name": "multihead", "heads": 2}

SPECS: dict[str, dict[str, Any]] = {
    "cnn_lstm": {"name": "cnn_lstm", **_READ, "hidden": 7},
    "cnn_lstm-flat": {
        **{"name": "cnn_lstm", **_READ, "hidden": 7},
        **{"pooling": "flat", "coordinates": False},
    },
    "stacked_attention": {"name": "stacked_attention", **_READ, "attention": _ADDITIVE, "hops": 2},
    "co_attention": {
        **{"name": "co_attention", **_READ, "hidden": 5},
        **{"image_attention": _DOT, "question_attention": _DOT},
    },
    "bottom_up": {"name": "bottom_up", **_READ, "attention": _DOT, "hidden": 5},
    "bottom_up-product": {
        **{"name": "bottom_up", **_READ, "attention": _DOT, "hidden": 9, "cell": "lstm"},
        **{"joint": "product", "activation": "relu", "normalised": False},
    },
    "cross_attention": {
        **{"name": "cross_attention", "backbone": _BACKBONE, "width": 8, "hidden": 11},
        **{"layers": 2, "image_layers": 1, "dropout": 0.0, "feed_forward": "relu"},
        **{"question_attention": _HEADS, "cross_attention": _HEADS},
        **{"image_attention": {**_HEADS, "positions": "rope_2d"}},
        **{"positions": {"name": "learned", "length": 12}},
        **{"image_positions": {"name": "learned", "length": 14}},
    },
}
COMPARED = SPECS


def batch(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Images [4,6,9,3] and questions [4,8]: rows of several lengths, one of them without a word."""
    images = np.random.default_rng(seed).normal(size=(4, *SHAPE))
    return images.astype(np.float32), np.pad(texts(1, seed)[0], ((0, 0), (0, 2)))


def parameters(system: VisualAnswerer, *read: np.ndarray) -> Any:
    """Parameters with no silent path; variances and scales are above 0."""

    def rule(path: str, noise: np.ndarray) -> np.ndarray:
        name = path.rpartition("/")[2]
        if name in ("variance", "scale"):
            return 0.5 + np.abs(noise)
        return 0.3 * noise if name in ("mean", "bias") else 2 * noise / np.sqrt(noise.shape[0])

    return wide(drawn(system, *read, rule=rule))


@once
def prepared(spec: dict[str, Any]) -> tuple[Any, Any]:
    """`call(params, images, questions)` to logits [B,C] and maps in float64, compiled once, and
    parameters.
    """
    system = make(spec)

    @jax.jit
    def run(params: Any, images: jax.Array, questions: jax.Array) -> Any:
        logits, left = system.apply({"params": params}, images, questions, mutable=[MAPS])
        return logits, system.maps(dict(left).get(MAPS, {}))

    def call(params: Any, images: np.ndarray, questions: np.ndarray) -> Any:
        with jax.enable_x64(True):
            given = wide(params), jnp.asarray(wide(images)), jnp.asarray(questions)
            return jax.device_get(run(*given))

    return call, parameters(system, *batch())


@once
def _answering(spec: dict[str, Any]) -> Any:
    return jax.jit(make(spec).apply)


def answered(spec: dict[str, Any], images: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """Logits alone, for other shapes than those of `batch`."""
    apply, params = _answering(spec), prepared(spec)[1]
    with jax.enable_x64(True):
        return np.asarray(apply({"params": wide(params)}, wide(images), questions))


def check_rows(spec: dict[str, Any]) -> None:
    """Another colour of a corner, or another word, gives other logits there, and nowhere else."""
    call, params = prepared(spec)
    images, questions = batch()
    before = call(params, images, questions)[0]
    seen, asked = images.copy(), questions.copy()
    seen[0, :2, :2] += 1.0
    asked[0, 1] = asked[0, 1] % 12 + 5
    for after in (call(params, seen, questions)[0], call(params, images, asked)[0]):
        assert np.abs(after[0] - before[0]).max() > 1e-5
        np.testing.assert_allclose(after[1:], before[1:], rtol=1e-12, atol=1e-12)


def check_padding(spec: dict[str, Any]) -> None:
    """More padding behind the questions changes no logit; a question without a word is finite."""
    call, params = prepared(spec)
    images, questions = batch()
    before = call(params, images, questions)[0]
    assert np.isfinite(before).all()
    longer = np.pad(questions, ((0, 0), (0, 2)))
    after = answered(spec, images, longer)
    np.testing.assert_allclose(after[:3], before[:3], rtol=1e-9, atol=1e-10)


def check_gradients(spec: dict[str, Any]) -> None:
    """Finite, one for every parameter, and none for the embedding of padding."""
    system, params = make(spec), prepared(spec)[1]
    with jax.enable_x64(True):
        squares = lambda params: (system.apply({"params": params}, *batch()) ** 2).sum()
        grads = jax.jit(jax.grad(squares))(params)
    check_heard(spec, grads, least=0.0)
    tables = [grad for path, grad in named(grads).items() if path.endswith("embed/embedding")]
    assert len(tables) == 1 or ":" in spec["name"]
    assert all((table[0] == 0).all() for table in tables)


def check_maps(spec: dict[str, Any]) -> None:
    """All are distributions; the places of an image are those of `grid`."""
    call, params = prepared(spec)
    places = np.prod(make(spec).grid(SHAPE))
    for name, one in call(params, *batch())[1].items():
        np.testing.assert_allclose(one.weights[:3].sum(axis=-1), 1.0, atol=1e-12, err_msg=name)
        if one.columns == "image" != one.rows:
            assert one.weights.shape[-1] == places, f"{name}: {one.weights.shape}, {places} places"


def check_learning(spec: dict[str, Any]) -> None:
    """Eight answers can be learnt by heart, that of the same question depends on the image."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(8, *SHAPE)).astype(np.float32)
    questions = np.tile(rng.integers(4, VOCABULARY, (4, 5)).astype(np.int32), (2, 1))
    labels = (np.arange(8) + np.arange(8) // 4) % CLASSES

    first, last = fitted(make(spec), (images, questions), entropy_of(labels))
    assert last < 0.2 * np.log(CLASSES) < first, f"the loss goes from {first:.3f} to {last:.3f}"


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the system and of its oracle, both in float64; not of the row without a word."""
    call, params = prepared(spec)
    images, questions = batch()
    told = oracle(wide(params), settings, wide(images), questions)
    return call(params, images, questions)[0][:3], told[:3]


CHECKS = {
    "rows": check_rows,
    "padding": check_padding,
    "gradients": check_gradients,
    "maps": check_maps,
}
