"""Systems that read an image alone, in evaluation, pixel by pixel, by their papers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.attention.oracles import part
from tests.attention.oracles.heads import heads_scores, heads_values
from tests.attention.oracles.rows import Look
from tests.attention.position_oracles import sinusoid
from tests.layers.gates.oracles import ORACLES as GATES
from tests.layers.gates.oracles import bilinear, convolution, largest
from tests.layers.oracles import feed_forward, norm_of
from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, affine, of_each_row

EPSILON = 1e-5  # of batch norm


@of_each_row
def cnn(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """Simonyan and Zisserman 2015, with batch norm and a mean over the last map."""
    return _read_out(params, cnn_features(params, settings, image))


def cnn_features(params: Tree, settings: Settings, x: np.ndarray) -> np.ndarray:
    """The last map [h,w,C] of an image x [H,W,C']."""
    for stage in range(len(settings["widths"])):
        for layer in range(settings["layers"]):
            at = f"{stage}_{layer}"
            x = _convolved(params[f"convolution_{at}"], x)
            x = np.maximum(_normed(params[f"normalisation_{at}"], x), 0)
        x = _gated(params, f"gate_{stage}", settings, x)
        height, width = len(x) // 2, x.shape[1] // 2
        windows = x[: 2 * height, : 2 * width].reshape(height, 2, width, 2, -1)
        pooled = np.max if settings["pooling"] == "max" else np.mean
        x = pooled(windows, axis=(1, 3))
    return x


@of_each_row
def resnet(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """He et al. 2016, both papers, and a mean over the last map."""
    return _read_out(params, resnet_features(params, settings, image))


def resnet_features(params: Tree, settings: Settings, x: np.ndarray) -> np.ndarray:
    """The last map [h,w,C] of an image x [H,W,C']."""
    large, pre = settings["stem"] == "imagenet", settings["order"] == "pre"
    bottleneck = settings["block"] == "bottleneck"
    blocks = [(settings["depth"] - 2) // (9 if bottleneck else 6)] * 3
    if large:
        assert settings["depth"] == 18
        blocks = [2, 2, 2, 2]
    x = _convolved(params["stem"], x, 2 if large else 1)
    x = np.maximum(_normed(params["stem_normalisation"], x), 0)
    x = largest(x[None])[0] if large else x
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
    return np.maximum(_normed(params["normalisation"], x), 0) if pre else x


FEATURES: dict[str, Callable[..., np.ndarray]] = {"cnn": cnn_features, "resnet": resnet_features}


def features(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """The last map [h,w,C] of the backbone of a system."""
    backbone = settings["backbone"]
    return FEATURES[backbone["name"]](params["backbone"], backbone, image)


@of_each_row
def segmenter(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """Long et al. 2015: the map of the backbone interpolated to pixels, and the image beside it."""
    x = features(params, settings, image)
    if not settings["width"]:
        return bilinear(affine(params["out"], x)[None], *image.shape[:2])[0]
    y = bilinear(affine(params["coarse"], x)[None], *image.shape[:2])[0]
    y = _convolved(params["fine"], np.concatenate([y, image], axis=-1))
    return affine(params["out"], np.maximum(_normed(params["normalisation"], y), 0))


@of_each_row
def vit(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """Dosovitskiy et al. 2021, one patch after another."""
    side, first, layer = settings["patch"], settings["class_token"], params["patches"]
    x, places = ([params["class_token"][0]], [(0, 0)]) if first else ([], [])
    for i, j in np.ndindex(image.shape[0] // side, image.shape[1] // side):
        patch = image[i * side : (i + 1) * side, j * side : (j + 1) * side]
        x.append(np.tensordot(patch, layer["kernel"], axes=3) + layer["bias"])
        places.append((i, j))
    standing = np.array(x) + _standing(params, settings, places)
    h = parts.blocks(params, settings, standing, "gelu", places=places)
    return affine(params["out"], h[0] if first else h.mean(axis=0))


def _standing(params: Tree, settings: Settings, places: list[tuple[int, int]]) -> Any:
    """What positions add to each token."""
    match part(settings, "positions", "none")[0]:
        case "learned":
            return params["positions"]["table"][: len(places)]
        case "sinusoidal":
            return np.array([sinusoid(p, settings["width"]) for p in range(len(places))])
        case "sinusoidal_2d":
            return on_grid(places, settings["width"])
    return 0.0


def on_grid(places: list[tuple[int, int]], width: int) -> np.ndarray:
    """Sines of rows and of columns side by side, [L,width]."""
    return np.array([[*sinusoid(i, width // 2), *sinusoid(j, width // 2)] for i, j in places])


def detr(params: Tree, settings: Settings, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Carion et al. 2020, figure 10: logits [L,B,N,C+1] and boxes [L,B,N,4] of every layer of the
    decoder.
    """
    answers = [_answers(params, settings, image) for image in images]
    logits, boxes = (np.stack(of_images, axis=1) for of_images in zip(*answers, strict=True))
    return logits, boxes


def _answers(params: Tree, settings: Settings, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits [L,N,C+1] and boxes [L,N,4] of an image."""
    f = features(params, settings, image)
    places = list(np.ndindex(f.shape[:2]))
    x = np.array([affine(params["project"], f[place]) for place in places])
    p, o = on_grid(places, settings["width"]), params["queries"]
    for number in range(settings["layers"]):
        x = _box_layer(params[f"encoder_{number}"], settings, x, p)
    x = parts.normalised(params.get("top_encoder"), settings, x)
    y, logits, boxes = np.zeros_like(o), [], []
    for number in range(settings["decoder_layers"] or settings["layers"]):
        y = _box_layer(params[f"decoder_{number}"], settings, y, o, (x + p, x))
        states = parts.normalised(params["top_decoder"], settings, y)
        logits.append(affine(params["of_class"], states))
        box = np.maximum(affine(params["of_box_0"], states), 0)
        box = np.maximum(affine(params["of_box_1"], box), 0)
        boxes.append(parts.sigmoid(affine(params["of_box_2"], box)))
    return np.array(logits), np.array(boxes)


def _box_layer(own: Tree, settings: Settings, y: np.ndarray, o: np.ndarray, seen: Any = ()) -> Any:
    """A layer of the encoder or the decoder, in which o is added to queries and keys; `seen`: keys
    and values of what the decoder looks at.
    """
    inside = settings["decoder_attention" if seen else "encoder_attention"]
    functions = {
        "self": lambda y: _looked(inside, own["self_attention"], y + o, y + o, y),
        "cross": lambda y: _looked(
            settings["cross_attention"], own["cross_attention"], y + o, *seen
        ),
        "feed_forward": lambda y: feed_forward("relu", own["feed_forward"], y),
    }
    return parts.placed(own, settings, y, functions, () if seen else ("cross",))


def _looked(fields: Settings, params: Tree, queries: Any, keys: Any, values: Any) -> np.ndarray:
    """Multi-head attention with values [Tk,d] apart from keys [Tk,d]."""
    mask = np.ones((1, len(queries), len(keys)), bool)
    look = Look(params, fields, queries[None], keys[None], mask)
    weights = look.weights(look.heads, heads_scores(look))
    return look.layer("out", heads_values(look._replace(source=values[None]), weights))[0]


@of_each_row
def glimpses(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """Mnih et al. 2014, equations of section 3 without draws: each location at its mean."""
    core, state, at = params["core"], parts.no_state(params["core"]), np.zeros(2)
    for _ in range(settings["glimpses"]):
        seen = [_sensed(image, at, settings["size"], 2**j) for j in range(settings["scales"])]
        what = np.maximum(affine(params["what"], np.ravel(seen)), 0)
        where = np.maximum(affine(params["where"], at), 0)
        g = affine(params["of_what"], what) + affine(params["of_where"], where)
        state = parts.layer_step(core, state, np.maximum(g, 0))
        at = np.tanh(affine(params["location"], state[1]))
    return affine(params["out"], state[1])


def _sensed(image: np.ndarray, at: np.ndarray, size: int, side: int) -> np.ndarray:
    """A patch: each of its pixels the area under it, pixel by pixel, over its own area."""
    height, width, channels = image.shape
    result = np.zeros((size, size, channels))
    for i, j, row, column in np.ndindex(size, size, height, width):
        top = (at[0] + 1) / 2 * height + (i - size / 2) * side
        left = (at[1] + 1) / 2 * width + (j - size / 2) * side
        high = min(top + side, row + 1) - max(top, row)
        broad = min(left + side, column + 1) - max(left, column)
        if high > 0 and broad > 0:
            result[i, j] += high * broad * image[row, column] / side**2
    return result


@of_each_row
def perceptron(params: Tree, settings: Settings, image: np.ndarray) -> np.ndarray:
    """Products and relus over all numbers of an image."""
    x = np.ravel(image)
    for number in range(len(settings["widths"])):
        x = np.maximum(affine(params[f"hidden_{number}"], x), 0)
    return affine(params["out"], x)


def _post(
    block: Tree, settings: Settings, x: np.ndarray, strides: list[int], first: bool
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
    block: Tree, settings: Settings, x: np.ndarray, strides: list[int], first: bool
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


def _gated(params: Tree, name: str, settings: Settings, x: np.ndarray) -> np.ndarray:
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
    """The convolution of a layer, of an image [H,W,C]."""
    return convolution(x[None], layer["kernel"], stride)[0]


def _normed(norm: Tree, x: np.ndarray) -> np.ndarray:
    """Batch norm with its running averages."""
    return norm_of("batch_norm", norm, x, EPSILON)


def _read_out(params: Tree, x: np.ndarray) -> np.ndarray:
    """The mean over pixels, times W, plus b."""
    return affine(params["out"], x.mean(axis=(0, 1)))
