"""Classifiers of images in evaluation, pixel by pixel, by their papers."""

from typing import Any

import numpy as np

from tests.attention.oracles import part
from tests.attention.position_oracles import sinusoid
from tests.layers.gates.oracles import ORACLES as GATES
from tests.layers.oracles import norm_of
from tests.systems.oracles.parts import Tree, affine, blocks

EPSILON = 1e-5  # of batch norm


def cnn(params: Tree, settings: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """Simonyan and Zisserman 2015, with batch norm and a mean over the last map."""
    return np.array([_read_out(params, cnn_features(params, settings, x)) for x in images])


def cnn_maps(params: Tree, settings: dict[str, Any], images: np.ndarray) -> list[np.ndarray]:
    """The last map of each image."""
    return [cnn_features(params, settings, x) for x in images]


def cnn_features(params: Tree, settings: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """The last map [h,w,C] of an image x [H,W,C']."""
    for stage in range(len(settings["widths"])):
        for layer in range(settings["layers"]):
            at = f"{stage}_{layer}"
            x = _convolved(params[f"convolution_{at}"], x)
            x = np.maximum(_normed(params[f"normalisation_{at}"], x), 0)
        x = _gated(params, f"gate_{stage}", settings, x)
        x = _windows(x, 2, 2, 0, np.max if settings["pooling"] == "max" else np.mean)
    return x


def resnet(params: Tree, settings: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """He et al. 2016, both papers, and a mean over the last map."""
    return np.array([_read_out(params, x) for x in resnet_maps(params, settings, images)])


def resnet_maps(params: Tree, settings: dict[str, Any], images: np.ndarray) -> list[np.ndarray]:
    """The last map of each image."""
    large, pre = settings["stem"] == "imagenet", settings["order"] == "pre"
    bottleneck = settings["block"] == "bottleneck"
    blocks = [(settings["depth"] - 2) // (9 if bottleneck else 6)] * 3
    if large:
        assert settings["depth"] == 18
        blocks = [2, 2, 2, 2]
    maps = []
    for x in images:
        x = _convolved(params["stem"], x, 2 if large else 1)
        x = np.maximum(_normed(params["stem_normalisation"], x), 0)
        x = _windows(x, 3, 2, 1, np.max) if large else x
        for stage, count in enumerate(blocks):
            for number in range(count):
                block = params[f"stage_{stage}_block_{number}"]
                stride = 2 if stage > 0 and number == 0 else 1
                strides = [stride, 1]
                if bottleneck:
                    second = settings["strided"] == "second"
                    strides = [1, stride, 1] if second else [stride, 1, 1]
                first = stage == 0 and number == 0
                x = (_pre if pre else _post)(block, settings, x, strides, first)
                if settings.get("place") == "after":
                    x = _gated(block, "gate", settings, x)
        if pre:
            x = np.maximum(_normed(params["normalisation"], x), 0)
        maps.append(x)
    return maps


MAPS = {"cnn": cnn_maps, "resnet": resnet_maps}


def segmenter(params: Tree, settings: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """Long et al. 2015: the map of the backbone interpolated to pixels, and the image beside it."""
    backbone, logits = settings["backbone"], []
    maps = MAPS[backbone["name"]](params["backbone"], backbone, images)
    for x, image in zip(maps, images, strict=True):
        if settings["width"]:
            y = _interpolated(affine(params["coarse"], x), *image.shape[:2])
            y = _convolved(params["fine"], np.concatenate([y, image], axis=-1))
            y = np.maximum(_normed(params["normalisation"], y), 0)
            logits.append(affine(params["out"], y))
        else:
            logits.append(_interpolated(affine(params["out"], x), *image.shape[:2]))
    return np.array(logits)


def _interpolated(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear, corners on corners: along one axis, then along the other."""
    for axis, size in ((0, height), (1, width)):
        count = x.shape[axis]
        at, known = np.linspace(0, count - 1, size), np.arange(count)
        x = np.apply_along_axis(lambda one, at=at, known=known: np.interp(at, known, one), axis, x)
    return x


def vit(params: Tree, settings: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """Dosovitskiy et al. 2021, one patch after another."""
    side, first = settings["patch"], settings["class_token"]
    logits = []
    for image in images:
        x, places = ([params["class_token"][0]], [(0, 0)]) if first else ([], [])
        for i in range(image.shape[0] // side):
            for j in range(image.shape[1] // side):
                patch = image[i * side : (i + 1) * side, j * side : (j + 1) * side]
                kernel = params["patches"]["kernel"]
                x.append(np.tensordot(patch, kernel, axes=3) + params["patches"]["bias"])
                places.append((i, j))
        x = np.array(x) + _standing(params, settings, places)
        h = blocks(params, settings, x, "gelu", places=places)
        read = h[0] if first else h.mean(axis=0)
        logits.append(affine(params["out"], read))
    return np.array(logits)


def _standing(params: Tree, settings: dict[str, Any], places: list[tuple[int, int]]) -> Any:
    """What positions add to each token."""
    match part(settings, "positions", "none")[0]:
        case "learned":
            return params["positions"]["table"][: len(places)]
        case "sinusoidal":
            return np.array([sinusoid(p, settings["width"]) for p in range(len(places))])
        case "sinusoidal_2d":
            half = settings["width"] // 2
            return np.array([[*sinusoid(i, half), *sinusoid(j, half)] for i, j in places])
    return 0.0


def _post(
    block: Tree, settings: dict[str, Any], x: np.ndarray, strides: list[int], first: bool
) -> np.ndarray:
    """relu(N(conv(... relu(N(conv x)))) + short(x))."""
    y = x
    for number, stride in enumerate(strides):
        y = np.maximum(y, 0) if number else y
        y = _normed(
            block[f"normalisation_{number}"], _convolved(block[f"convolution_{number}"], y, stride)
        )
    if settings.get("place") != "after":
        y = _gated(block, "gate", settings, y)
    if settings["residual"]:
        short = _padded(x, y)
        if "projection" in block:
            short = _convolved(block["projection"], x, max(strides))
            short = _normed(block["projection_normalisation"], short)
        y = y + short
    return np.maximum(y, 0)


def _pre(
    block: Tree, settings: dict[str, Any], x: np.ndarray, strides: list[int], first: bool
) -> np.ndarray:
    """conv(relu(N(... conv(relu(N x))))) + short(x); x of the first block is activated already."""
    activated = x if first else np.maximum(_normed(block["normalisation_0"], x), 0)
    y = _convolved(block["convolution_0"], activated, strides[0])
    for number, stride in enumerate(strides[1:], 1):
        y = np.maximum(_normed(block[f"normalisation_{number}"], y), 0)
        y = _convolved(block[f"convolution_{number}"], y, stride)
    if settings.get("place") != "after":
        y = _gated(block, "gate", settings, y)
    if not settings["residual"]:
        return y
    if "projection" in block:
        return y + _convolved(block["projection"], activated, max(strides))
    return y + _padded(x, y)


def _gated(params: Tree, name: str, settings: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Through the gate of that name, if it has parameters."""
    if name not in params:
        return x
    gate = settings["gate"]
    fields = {"name": gate} if isinstance(gate, str) else gate
    y, _ = GATES[fields["name"]](params[name], fields, x[None])
    return y[0]


def _padded(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Every s-th pixel of x, and channels of zeros up to those of `like`."""
    stride = 1 if x.shape[0] == like.shape[0] else 2
    result = np.zeros_like(like)
    for i, j in np.ndindex(like.shape[:2]):
        result[i, j, : x.shape[2]] = x[stride * i, stride * j]
    return result


def _convolved(layer: Tree, x: np.ndarray, stride: int = 1) -> np.ndarray:
    """sum over the window and the channels of pixel times weight; zeros around the image."""
    kernel = layer["kernel"]
    size = kernel.shape[0]
    edge = size // 2
    padded = np.pad(x, ((edge, edge), (edge, edge), (0, 0)))
    rows, columns = ((one - 1) // stride + 1 for one in x.shape[:2])
    result = np.zeros((rows, columns, kernel.shape[3]))
    for i, j in np.ndindex(rows, columns):
        window = padded[stride * i : stride * i + size, stride * j : stride * j + size]
        result[i, j] = np.tensordot(window, kernel, axes=3)
    return result


def _normed(norm: Tree, x: np.ndarray) -> np.ndarray:
    """Batch norm with its running averages."""
    return norm_of("batch_norm", norm, x, EPSILON)


def _windows(x: np.ndarray, size: int, stride: int, edge: int, of: Any) -> np.ndarray:
    """The largest or the mean of each window; pixels around the image are never the largest."""
    around = ((edge, edge), (edge, edge), (0, 0))
    padded = np.pad(x, around, constant_values=-np.inf) if edge else x
    rows = (padded.shape[0] - size) // stride + 1
    columns = (padded.shape[1] - size) // stride + 1
    result = np.zeros((rows, columns, x.shape[2]))
    for i, j in np.ndindex(rows, columns):
        window = padded[stride * i : stride * i + size, stride * j : stride * j + size]
        result[i, j] = of(window, axis=(0, 1))
    return result


def _read_out(params: Tree, x: np.ndarray) -> np.ndarray:
    """The mean over pixels, times W, plus b."""
    return affine(params["out"], x.mean(axis=(0, 1)))
