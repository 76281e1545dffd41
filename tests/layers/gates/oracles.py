"""Float64 NumPy references of the gates, written from the papers with plain loops.

(params, fields, x [B,H,W,C]) to y, and g by path ("" for the gate itself, "first" for a part of
it). Norms compute with their running averages.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.layers.oracles import affine, norm_of, sigmoid

Result = tuple[np.ndarray, dict[str, np.ndarray]]


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def norm(params: Any, name: str, x: np.ndarray) -> np.ndarray:
    return norm_of(name, params.get("normalisation", {}), x, 1e-5 if name == "batch_norm" else 1e-6)


def convolution(x: np.ndarray, kernel: np.ndarray, stride: int = 1) -> np.ndarray:
    """Zeros around the map, kernel [k,k,C,D], its middle on every `stride`-th place."""
    size, edge = len(kernel), (len(kernel) // 2,) * 2
    padded = np.pad(x, ((0, 0), edge, edge, (0, 0)))
    rows, columns = (-(-length // stride) for length in x.shape[1:3])
    y = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    for i, j in np.ndindex(rows, columns):
        window = padded[:, stride * i : stride * i + size, stride * j : stride * j + size]
        y[:, i, j] = np.tensordot(window, kernel, axes=3)
    return y


def squeeze_excitation(params: Any, fields: Any, x: np.ndarray, pools: Any = ("mean",)) -> Result:
    """Hu et al., equations 2 to 4; Woo et al., equation 2."""
    g = np.zeros((len(x), 1, 1, x.shape[-1]))
    for b, image in enumerate(x):
        logits = np.zeros(x.shape[-1])
        for pool in fields.get("pools", pools):
            places = image.reshape(-1, x.shape[-1])
            z = places.sum(axis=0) / len(places) if pool == "mean" else places.max(axis=0)
            logits += affine(params["outer"], relu(affine(params["inner"], z)))
        g[b, 0, 0] = sigmoid(logits)
    return x * g, {"": g}


def channel(params: Any, fields: Any, x: np.ndarray) -> Result:
    """Woo et al., equation 2."""
    return squeeze_excitation(params, fields, x, ("mean", "max"))


def eca(params: Any, fields: Any, x: np.ndarray) -> Result:
    """Wang et al., equation 9."""
    channels, weights = x.shape[-1], params["kernel"]
    assert fields.get("kernel") or len(weights) == nearest_odd(math.log2(channels) / 2 + 0.5)
    g = np.zeros((len(x), 1, 1, channels))
    for b, c in np.ndindex(len(x), channels):
        total = 0.0
        for j, weight in enumerate(weights):
            channel = c + j - len(weights) // 2
            total += weight * x[b, :, :, channel].mean() if 0 <= channel < channels else 0.0
        g[b, 0, 0, c] = sigmoid(total)
    return x * g, {"": g}


def nearest_odd(number: float) -> int:
    """Of two equally near the larger."""
    return min(range(1, 99, 2), key=lambda size: (abs(size - number), -size))


def spatial(params: Any, fields: Any, x: np.ndarray) -> Result:
    """Woo et al., equation 3."""
    pooled = np.stack([x.sum(axis=-1) / x.shape[-1], x.max(axis=-1)], axis=-1)
    logits = convolution(pooled, params["kernel"])
    g = sigmoid(norm(params, fields.get("normalisation", "none"), logits))
    return x * g, {"": g}


def cbam(params: Any, fields: Any, x: np.ndarray) -> Result:
    """Woo et al., equation 1."""
    actual = {}
    for part in ("first", "second"):
        named = fields[part]
        x, g = ORACLES[named["name"]](params[part], named, x)
        actual[part] = g[""]
    return x, actual


def coordinate(params: Any, fields: Any, x: np.ndarray) -> Result:
    """Hou et al., equations 4 to 8."""
    g = np.zeros_like(x)
    for b, image in enumerate(x):
        height, width, _ = image.shape
        lines = [image[i].mean(axis=0) for i in range(height)]
        lines += [image[:, j].mean(axis=0) for j in range(width)]
        f = affine(params["inner"], np.array(lines))
        f = norm(params, fields.get("normalisation", "batch_norm"), f)
        f = f * np.clip(f + 3.0, 0.0, 6.0) / 6.0
        rows = sigmoid(affine(params["rows"], f[:height]))
        columns = sigmoid(affine(params["columns"], f[height:]))
        for i, j in np.ndindex(height, width):
            g[b, i, j] = rows[i] * columns[j]
    return x * g, {"": g}


def residual_attention(params: Any, fields: Any, x: np.ndarray) -> Result:
    """Wang et al., section 3.1 and equations 1 to 6."""
    named = fields.get("normalisation", "batch_norm")
    depth, units = fields["depth"], fields.get("units", 1)

    def step(tree: Any, h: np.ndarray) -> np.ndarray:
        return convolution(relu(norm(tree, named, h)), tree["kernel"])

    def unit(tree: Any, h: np.ndarray) -> np.ndarray:
        return h + step(tree["step_2"], step(tree["step_1"], step(tree["step_0"], h)))

    def several(name: str, h: np.ndarray) -> np.ndarray:
        for number in range(units):
            h = unit(params[f"{name}_{number}"], h)
        return h

    levels = [x]
    for level in range(1, depth + 1):
        levels.append(several(f"down_{level}", largest(levels[-1])))
    u = several(f"up_{depth}", levels[depth])
    for level in range(depth - 1, 0, -1):
        u = bilinear(u, *levels[level].shape[1:3]) + unit(params[f"skip_{level}"], levels[level])
        u = several(f"up_{level}", u)
    logits = step(params["second"], step(params["first"], bilinear(u, *x.shape[1:3])))
    activation = fields.get("activation", "mixed")
    if activation == "channel":
        mask = logits / np.sqrt((logits**2).sum(axis=-1, keepdims=True))
    else:
        if activation == "spatial":
            logits = logits - logits.mean(axis=(1, 2), keepdims=True)
            logits = logits / np.sqrt((logits**2).mean(axis=(1, 2), keepdims=True))
        mask = sigmoid(logits)
    g = fields.get("identity", 1.0) + mask
    return x * g, {"": g}


def largest(x: np.ndarray) -> np.ndarray:
    """Windows of 3 x 3 around every second place, those beyond the map left out."""
    height, width = -(-x.shape[1] // 2), -(-x.shape[2] // 2)
    y = np.zeros((len(x), height, width, x.shape[-1]))
    for i, j in np.ndindex(height, width):
        window = x[:, max(2 * i - 1, 0) : 2 * i + 2, max(2 * j - 1, 0) : 2 * j + 2]
        y[:, i, j] = window.max(axis=(1, 2))
    return y


def bilinear(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """Corners on corners."""
    y = np.zeros((len(x), height, width, x.shape[-1]))
    for i, j in np.ndindex(height, width):
        for row, a in between(i, x.shape[1], height):
            for column, b in between(j, x.shape[2], width):
                y[:, i, j] += a * b * x[:, row, column]
    return y


def between(place: int, length: int, size: int) -> list[tuple[int, float]]:
    """The places that place `at` of `size` is read from, and their parts."""
    where = place * (length - 1) / (size - 1) if size > 1 else 0.0
    low = math.floor(where)
    return [(low, 1.0 - (where - low)), *([(low + 1, where - low)] if low + 1 < length else [])]


def non_local(params: Any, fields: Any, x: np.ndarray, form: str = "embedded") -> Result:
    """Wang et al., equations 1 to 6."""
    y, pool, channels = np.zeros_like(x), fields.get("pool", 1), x.shape[-1]
    for b, image in enumerate(x):
        corners = np.ndindex(-(-image.shape[0] // pool), -(-image.shape[1] // pool))
        tiles = [image[pool * i : pool * (i + 1), pool * j : pool * (j + 1)] for i, j in corners]
        source = np.array([tile.reshape(-1, channels).max(axis=0) for tile in tiles])
        values = source @ params["g"]["kernel"]
        for i, j in np.ndindex(image.shape[:2]):
            fits = np.array([fit(params, fields, form, image[i, j], key) for key in source])
            divisor = fits.sum() if form in ("embedded", "gaussian") else len(fits)
            y[b, i, j] = image[i, j] + (fits / divisor) @ values @ params["out"]["kernel"]
    return y, {}


def fit(params: Any, fields: Any, form: str, key: np.ndarray, other: np.ndarray) -> float:
    """f of equations 2 to 5; with the scale of the released code where it is asked for."""
    if form == "gaussian":
        return float(np.exp(key @ other))
    q, k = key @ params["theta"]["kernel"], other @ params["phi"]["kernel"]
    if form == "concat":
        score = params["attention"]["score"]
        weights = np.concatenate([score["w_query"]["kernel"], score["w_key"]["kernel"]])[:, 0]
        return float(max(weights @ np.concatenate([q, k]), 0.0))
    scale = len(q) ** -0.5 if fields.get("score") == "scaled_dot" else 1.0
    return float(np.exp(scale * (q @ k)) if form == "embedded" else q @ k)


def none(params: Any, fields: Any, x: np.ndarray) -> Result:
    return x, {}


ORACLES: dict[str, Callable[..., Result]] = {
    "se": squeeze_excitation,
    "eca": eca,
    "channel": channel,
    "spatial": spatial,
    "cbam": cbam,
    "coordinate": coordinate,
    "residual_attention": residual_attention,
    "non_local": non_local,
    "non_local_gaussian": lambda *arguments: non_local(*arguments, "gaussian"),
    "non_local_dot": lambda *arguments: non_local(*arguments, "dot"),
    "non_local_concat": lambda *arguments: non_local(*arguments, "concat"),
    "none": none,
}
