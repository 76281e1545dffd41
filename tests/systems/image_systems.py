"""Promises of the systems that read images alone, which are classifiers of images and of pixels and
detectors, as functions that raise AssertionError; tiny ones, and what they read.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.layers.norms import STATISTICS
from attnlab.systems.vision.protocol import Detected, Detector, ImageClassifier, PixelClassifier
from tests.systems.checks import SILENT, check_heard
from tests.systems.tiny import SIZES, drawn, entropy_of, fitted, make, once, wide

CLASSES = SIZES[ImageClassifier]["classes"]
ROWS = 3
_CNN = {"name": "cnn", "widths": (3, 4), "layers": 1, "kernel": 3, "pooling": "max"}
_RESNET = {
    "name": "resnet",
    **{"stem": "cifar", "depth": 8, "block": "basic", "order": "post", "width": 2},
    **{"shortcut": "pad", "residual": True, "strided": "first"},
}
_HEADS = {"name": "multihead", "heads": 2, "bias": True}
_VIT = {
    **{"name": "vit", "positions": {"name": "learned", "length": 7}, "norm": "pre"},
    **{"patch": 2, "class_token": True, "width": 8, "layers": 2, "hidden": 6},
    "attention": _HEADS,
}
_DEEP = {**_RESNET, "block": "bottleneck", "depth": 11}
_GLIMPSES = {
    **{"name": "glimpses", "glimpses": 3, "size": 3, "scales": 2, "hidden": 4, "width": 5},
    **{"cell": "lstm", "deviation": 0.1},
}
OF_IMAGES: dict[str, dict[str, Any]] = {
    "cnn": _CNN,
    "cnn-mean": {**_CNN, "layers": 2, "kernel": 5, "pooling": "mean"},
    "resnet": _RESNET,
    "resnet-plain": {**_RESNET, "residual": False},
    "resnet-pre": {**_RESNET, "order": "pre"},
    "resnet-bottleneck": {**_DEEP, "shortcut": "project_all"},
    "resnet-pre-bottleneck": {**_DEEP, "order": "pre", "shortcut": "project", "strided": "second"},
    "resnet-gated": {**_RESNET, "gate": {"name": "se", "reduction": 2}},
    "resnet-pre-gated": {
        **_RESNET,
        **{"order": "pre", "gate": "spatial", "gated": (0, 2), "place": "after"},
    },
    "cnn-gated": {**_CNN, "gate": {"name": "non_local", "reduction": 2}, "gated": (1,)},
    "glimpses": _GLIMPSES,
    "glimpses-gru": {**_GLIMPSES, "cell": "gru", "glimpses": 1, "scales": 1},
    "perceptron": {"name": "perceptron", "widths": (5, 4)},
    "vit": _VIT,
    "vit-mean": {
        **_VIT,
        **{"class_token": False, "positions": "sinusoidal_2d", "norm": "sandwich"},
        "normalisation": {"name": "layer_norm", "epsilon": 1e-3},
    },
    "vit-rope": {
        **{**_VIT, "positions": "none", "feed_forward": "relu"},
        "attention": {**_HEADS, "positions": "rope_2d"},
    },
    "vit-linear": {**_VIT, "norm": "post", "attention": {"name": "linear", "heads": 2}},
    "vit-window": {
        **{**_VIT, "positions": "sinusoidal"},
        "visibility": {"name": "window", "width": 2},
    },
    "resnet-imagenet": {**_RESNET, "stem": "imagenet", "depth": 18, "shortcut": "project"},
}
SHAPES: dict[str, tuple[int, int, int]] = {"vit": (4, 6, 3), "detr": (12, 13, 3)}
"""H, W, C' of the images that a system reads, where it is not the usual one."""
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
COMPARED = SPECS
LARGER: dict[str, dict[str, Any]] = {  # or smaller: what learns by heart with fewer layers
    **{"cnn": {}, "resnet": {}, "perceptron": {}},
    "detr": {"decoder_layers": 1},
    "segmenter": {"backbone": OF_IMAGES["cnn"]},
    "vit": {"layers": 1},
    "glimpses": {"glimpses": 2},
}
_FIRST = "decoder_0/self_attention"  # queries begin as zeros, so that it looks at nothing but those
SILENT["detr"] = (
    *(f"{_FIRST}/{one}" for one in ("w_key/kernel", "w_query/kernel", "w_query/bias")),
    *(f"{_FIRST}/w_value/kernel", "decoder_0/around_self/normalisation/scale"),
)
SILENT["glimpses"] = (  # where to look and what to expect learn from losses; one look has no past
    *("expected/kernel", "expected/bias", "location/kernel", "location/bias"),
    *("where/kernel", "core/cell/gates", "core/cell/candidate"),
)


def shape_of(spec: dict[str, Any]) -> tuple[int, int, int]:
    """H, W, C' as small as the network reads them; for patches, 2 x 3 of them."""
    usual = (32, 33, 3) if spec.get("stem") == "imagenet" else (8, 9, 3)
    return SHAPES.get(spec["name"], usual)


def shown(spec: dict[str, Any], rows: int = ROWS) -> np.ndarray:
    """Images [rows,H,W,C'] of a shape that a system reads, float32."""
    noise = np.random.default_rng(1).normal(size=(rows, *shape_of(spec)))
    return noise.astype(np.float32)


def parameters(system: ImageClassifier, read: np.ndarray, seed: int = 0) -> Any:
    """Parameters with no silent path; variances are above 0."""

    def rule(path: str, noise: np.ndarray) -> np.ndarray:
        name = path.rpartition("/")[2]
        if name in ("kernel", "past"):
            return noise * (2 / np.prod(noise.shape[:-1])) ** 0.5
        around_zero = name in ("mean", "bias", "class_token", "table")
        return 0.3 * noise if around_zero else 0.5 + np.abs(noise)

    return drawn(system, read, seed=seed, rule=rule)


def joined(found: Any) -> jax.Array:
    """Everything that is said of each image, in a row: [B,n]."""
    parts = [jnp.moveaxis(one, 1, 0) for one in found] if isinstance(found, Detected) else [found]
    return jnp.concatenate([one.reshape(len(one), -1) for one in parts], axis=1)


@once
def prepared(spec: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """In float64, compiled once: `run(params, images)` to what is `joined` and the boxes of a
    detector; parameters; the system; and `slope(params, images)` to gradients of the sum of squares.
    """
    system = make(spec)

    @jax.jit
    def said(params: Any, read: jax.Array) -> Any:
        answers = system.apply({"params": params}, read)
        return joined(answers), answers.boxes if isinstance(answers, Detected) else None

    @jax.jit
    @jax.grad
    def slopes(params: Any, read: jax.Array) -> Any:
        return (joined(system.apply({"params": params}, read)) ** 2).sum()

    def in_float64(program: Any, params: Any, read: np.ndarray) -> Any:
        with jax.enable_x64(True):
            return jax.device_get(program(wide(params), jnp.asarray(wide(read))))

    run, slope = (functools.partial(in_float64, program) for program in (said, slopes))
    return run, parameters(system, shown(spec)), system, slope


def check_answers(spec: dict[str, Any]) -> None:
    """They are finite and differ from image to image; boxes are shares of the image."""
    run, params, system, _ = prepared(spec)
    told, boxes = run(params, shown(spec))
    assert np.isfinite(told).all()
    assert np.abs(told[0] - told[1]).max() > 1e-5, "two images get the same answer"
    if isinstance(system, Detector):
        assert boxes.min() >= 0 and boxes.max() <= 1, "a box is no share of the image"


def check_rows(spec: dict[str, Any]) -> None:
    """An answer is of its own image: the others change nothing."""
    run, params, *_ = prepared(spec)
    read = shown(spec)
    before, _ = run(params, read)
    read[0] += np.random.default_rng(2).normal(size=read[0].shape)
    after, _ = run(params, read)
    assert np.abs(after[0] - before[0]).max() > 1e-5, "another image gets the same answer"
    np.testing.assert_allclose(after[1:], before[1:], rtol=1e-9, atol=1e-10)
    alone, _ = run(params, np.repeat(read[2:], ROWS, axis=0))
    np.testing.assert_allclose(alone[0], before[2], rtol=1e-9, atol=1e-10)


def check_padding(spec: dict[str, Any]) -> None:
    """In training, where norms see the whole batch, rows that are no images change no answer and no
    statistics.
    """
    _, params, system, _ = prepared(spec)

    def both(params: Any, read: jax.Array) -> Any:
        more, valid = jnp.concatenate([read, jnp.full_like(read[:1], 9.0)]), jnp.arange(ROWS + 1)
        padded, seen = system.apply({"params": params}, more, valid < ROWS, mutable=[STATISTICS])
        plain, expected = system.apply({"params": params}, read, mutable=[STATISTICS])
        return (joined(padded)[:ROWS], dict(seen)), (joined(plain), dict(expected))

    with jax.enable_x64(True):
        padded, plain = jax.jit(both)(wide(params), jnp.asarray(wide(shown(spec))))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8), padded, plain)
    assert system.over_batch == bool(plain[1]), "over_batch is not what a pass of training leaves"


def check_gradients(spec: dict[str, Any]) -> None:
    """Finite, and there is one for every parameter, for one of two draws of them at least: a unit
    may be dead.
    """
    _, _, system, slope = prepared(spec)
    read = shown(spec)
    draws = [slope(parameters(system, read, seed), read) for seed in (0, 1)]
    check_heard(spec, *draws, least=1e-12)


def check_learning(spec: dict[str, Any]) -> None:
    """The classes of eight images, of the quarters of eight images, or objects with boxes can be
    learnt by heart.
    """
    system, rng = make(spec), np.random.default_rng(0)
    height, width, _ = shape_of(spec)
    read = shown(spec, 8)
    if isinstance(system, Detector):
        labels = rng.integers(0, CLASSES, (8, system.queries))
        boxes = rng.uniform(0.2, 0.8, (8, system.queries, 4))

        def cost(found: Any) -> jax.Array:
            off = jnp.abs(found.boxes[-1] - boxes).mean()
            return entropy_of(labels)(found.logits[-1]) + off
    elif isinstance(system, PixelClassifier):
        labels = rng.integers(0, CLASSES, (8, 2, 2))
        labels = labels.repeat(-(-height // 2), axis=1).repeat(-(-width // 2), axis=2)
        labels = labels[:, :height, :width]
        read = read * 0.1 + np.eye(CLASSES)[labels][..., : read.shape[-1]].astype(np.float32)
        cost = entropy_of(labels)
    else:
        cost = entropy_of(rng.integers(0, CLASSES, 8))

    first, last = fitted(system, (read,), cost)
    assert last < 0.2 * np.log(CLASSES) < first, f"the loss goes from {first:.3f} to {last:.3f}"


def compared(
    spec: dict[str, Any], oracle: Any, settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """What the system says and what the oracle says of images, both in float64, see `joined`."""
    run, params, system, _ = prepared(spec)
    read = shown(spec)
    told = oracle(wide(params), settings, wide(read))
    with jax.enable_x64(True):
        told = Detected(*map(jnp.asarray, told)) if isinstance(system, Detector) else told
        return run(params, read)[0], np.asarray(joined(told))


CHECKS = {
    "answers": check_answers,
    "rows": check_rows,
    "padding": check_padding,
    "gradients": check_gradients,
}
