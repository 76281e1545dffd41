"""Promises of the systems that read images alone, which are classifiers of images and of pixels and
detectors, as functions that raise AssertionError; and tiny detectors and classifiers of pixels.
"""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.layers.norms import STATISTICS
from attnlab.systems import SYSTEMS
from attnlab.systems.vision.protocol import Detected, Detector, PixelClassifier
from tests.systems.checks import SILENT, heard, wide
from tests.systems.image_classifiers import CLASSES, SHAPES, parameters, shape_of
from tests.systems.image_classifiers import SPECS as OF_IMAGES
from tests.systems.learning import fitted

_HEADS = {"name": "multihead", "heads": 2, "bias": True}
_DETR = {
    "name": "detr",
    **{"backbone": OF_IMAGES["cnn"], "positions": "sinusoidal_2d", "norm": "post"},
    **{f"{slot}_attention": _HEADS for slot in ("encoder", "decoder", "cross")},
    **{"width": 8, "hidden": 6, "layers": 1, "decoder_layers": 2, "queries": 3, "dropout": 0.0},
}
DETECTORS: dict[str, dict[str, Any]] = {
    "detr": _DETR,
    "detr-pre": {**_DETR, "norm": "pre", "layers": 2, "decoder_layers": 0},
}
OF_PIXELS: dict[str, dict[str, Any]] = {
    "segmenter": {"name": "segmenter", "backbone": OF_IMAGES["resnet"], "width": 3},
    "segmenter-gated": {"name": "segmenter", "backbone": OF_IMAGES["cnn-gated"], "width": 3},
    "segmenter-coarse": {"name": "segmenter", "backbone": OF_IMAGES["cnn"], "width": 0},
}
SPECS = {**OF_IMAGES, **OF_PIXELS, **DETECTORS}
SHAPES["detr"] = (12, 13, 3)
_FIRST = "decoder_0/self_attention"  # queries begin as zeros, so that it looks at nothing but those
SILENT["detr"] = (
    *(f"{_FIRST}/{one}" for one in ("w_key/kernel", "w_query/kernel", "w_query/bias")),
    *(f"{_FIRST}/w_value/kernel", "decoder_0/around_self/normalisation/scale"),
)
SILENT["glimpses"] = (  # where to look and what to expect learn from losses; one look has no past
    *("expected/kernel", "expected/bias", "location/kernel", "location/bias"),
    *("where/kernel", "core/cell/gates", "core/cell/candidate"),
)
ROWS = 3


def make(spec: dict[str, Any]) -> Any:
    """A tiny system."""
    return build(SYSTEMS, ConfigDict(spec), "system")(classes=CLASSES)


def shown(spec: dict[str, Any], rows: int = ROWS) -> np.ndarray:
    """[rows,H,W,C'], float32."""
    noise = np.random.default_rng(1).normal(size=(rows, *shape_of(spec)))
    return noise.astype(np.float32)


def joined(found: Any) -> jax.Array:
    """Everything that is said of each image, in a row: [B,n]."""
    parts = [jnp.moveaxis(one, 1, 0) for one in found] if isinstance(found, Detected) else [found]
    return jnp.concatenate([one.reshape(len(one), -1) for one in parts], axis=1)


class Pass(NamedTuple):
    """Of one batch: what is `joined`, boxes of a detector, and gradients of the sum of squares."""

    told: np.ndarray
    boxes: Any
    gradients: Any


@functools.cache
def _made(spec: str) -> tuple[Any, Any, Any]:
    chosen = json.loads(spec)
    system = make(chosen)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def slopes(params: Any, read: jax.Array) -> Any:
        found = system.apply({"params": params}, read)
        told = joined(found)
        return (told**2).sum(), (told, found.boxes if isinstance(found, Detected) else None)

    def run(params: Any, read: np.ndarray) -> Pass:
        with jax.enable_x64(True):
            gradients, (told, boxes) = slopes(wide(params), jnp.asarray(wide(read)))
        return Pass(np.asarray(told), boxes, gradients)

    return run, parameters(system, shown(chosen)), system


def prepared(spec: dict[str, Any]) -> tuple[Any, Any, Any]:
    """`run(params, images)` to a `Pass` in float64, compiled once; parameters; and the system."""
    return _made(json.dumps(spec, sort_keys=True))


def check_answers(spec: dict[str, Any]) -> None:
    """They are finite and differ from image to image; boxes are shares of the image."""
    run, params, system = prepared(spec)
    found = run(params, shown(spec))
    assert np.isfinite(found.told).all()
    assert np.abs(found.told[0] - found.told[1]).max() > 1e-5, "two images get the same answer"
    if isinstance(system, Detector):
        boxes = np.asarray(found.boxes)
        assert boxes.min() >= 0 and boxes.max() <= 1, "a box is no share of the image"


def check_rows(spec: dict[str, Any]) -> None:
    """An answer is of its own image: the others change nothing."""
    run, params, _ = prepared(spec)
    read = shown(spec)
    before = run(params, read).told
    read[0] += np.random.default_rng(2).normal(size=read[0].shape)
    after = run(params, read).told
    assert np.abs(after[0] - before[0]).max() > 1e-5, "another image gets the same answer"
    np.testing.assert_allclose(after[1:], before[1:], rtol=1e-9, atol=1e-10)
    alone = run(params, np.repeat(read[2:], ROWS, axis=0)).told
    np.testing.assert_allclose(alone[0], before[2], rtol=1e-9, atol=1e-10)


def check_padding(spec: dict[str, Any]) -> None:
    """In training, where norms see the whole batch, rows that are no images change no answer and no
    statistics.
    """
    _, params, system = prepared(spec)

    def both(params: Any, read: jax.Array) -> Any:
        more, valid = jnp.concatenate([read, jnp.full_like(read[:1], 9.0)]), jnp.arange(ROWS + 1)
        padded, seen = system.apply({"params": params}, more, valid < ROWS, mutable=[STATISTICS])
        plain, wanted = system.apply({"params": params}, read, mutable=[STATISTICS])
        return (joined(padded)[:ROWS], dict(seen)), (joined(plain), dict(wanted))

    with jax.enable_x64(True):
        padded, plain = jax.jit(both)(wide(params), jnp.asarray(wide(shown(spec))))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8), padded, plain)
    assert system.over_batch == bool(plain[1]), "over_batch is not what a pass of training leaves"


def check_gradients(spec: dict[str, Any]) -> None:
    """Finite, and there is one for every parameter, for one of two draws of them at least: a unit
    may be dead.
    """
    run, _, system = prepared(spec)
    largest: dict[str, float] = {}
    for seed in (0, 1):
        found = run(parameters(system, shown(spec), seed), shown(spec)).gradients
        for path, one in jax.tree_util.tree_leaves_with_path(found):
            assert np.isfinite(one).all()
            name = jax.tree_util.keystr(path)
            largest[name] = max(largest.get(name, 0.0), float(np.abs(one).max()))
    silent = heard(spec, [name for name, one in largest.items() if not one > 1e-12])
    assert not silent, f"no gradient for {', '.join(silent)}"


def check_dropout(spec: dict[str, Any]) -> None:
    """The rate changes nothing without a random stream, and other keys drop other units."""
    run, params, _ = prepared({**spec, "dropout": 0.0})
    system, read = make({**spec, "dropout": 0.5}), shown(spec)
    apply = jax.jit(
        lambda key: joined(system.apply({"params": params}, read, rngs={"dropout": key}))
    )
    quiet = prepared({**spec, "dropout": 0.5})[0](params, read).told
    np.testing.assert_array_equal(quiet, run(params, read).told)
    assert np.abs(apply(jax.random.key(0)) - apply(jax.random.key(1))).max() > 1e-3


def check_learning(spec: dict[str, Any]) -> None:
    """The classes of eight images, of the quarters of eight images, or objects with boxes can be
    learnt by heart.
    """
    system, rng = make(spec), np.random.default_rng(0)
    height, width, _ = shape_of(spec)
    read = shown(spec, 8)
    entropy = optax.softmax_cross_entropy_with_integer_labels
    if isinstance(system, Detector):
        labels = rng.integers(0, CLASSES, (8, system.queries))
        boxes = rng.uniform(0.2, 0.8, (8, system.queries, 4))

        def cost(found: Any) -> jax.Array:
            off = jnp.abs(found.boxes[-1] - boxes).mean()
            return entropy(found.logits[-1], labels).mean() + off
    elif isinstance(system, PixelClassifier):
        labels = rng.integers(0, CLASSES, (8, 2, 2))
        labels = labels.repeat(-(-height // 2), axis=1).repeat(-(-width // 2), axis=2)
        labels = labels[:, :height, :width]
        read = read * 0.1 + np.eye(CLASSES)[labels][..., : read.shape[-1]].astype(np.float32)

        def cost(found: Any) -> jax.Array:
            return entropy(found, labels).mean()
    else:
        labels = rng.integers(0, CLASSES, 8)

        def cost(found: Any) -> jax.Array:
            return entropy(found, labels).mean()

    first, last = fitted(system, (read,), cost)
    assert last < 0.2 * np.log(CLASSES) < first, f"the loss goes from {first:.3f} to {last:.3f}"


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """What the system says and what the oracle says of images, both in float64, see `joined`."""
    run, params, system = prepared(spec)
    read = shown(spec)
    told = oracle(wide(params), settings, wide(read))
    told = Detected(*map(jnp.asarray, told)) if isinstance(system, Detector) else told
    with jax.enable_x64(True):
        return run(params, read).told, np.asarray(joined(jax.tree.map(np.asarray, told)))


CHECKS = {
    "answers": check_answers,
    "rows": check_rows,
    "padding": check_padding,
    "gradients": check_gradients,
}
