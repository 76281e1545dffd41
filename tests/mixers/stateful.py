"""Float64 references of the mixers with a matrix as state, from the papers' equations, token by
token and head by head; padding is passed over.
"""

from typing import Any

import numpy as np

from tests.layers.oracles import sigmoid

Config = dict[str, Any]
Array = np.ndarray


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def rms(x: Array, scale: Any, epsilon: float) -> Array:
    return x / np.sqrt((x**2).mean() + epsilon) * scale


def turned(x: Array, position: int) -> Array:
    """Neighbouring channels, as complex numbers, turned by the angles of RoPE."""
    pairs = x[0::2] + 1j * x[1::2]
    angles = position * 10000.0 ** (-np.arange(len(pairs)) / len(pairs))
    pairs = pairs * np.exp(1j * angles)
    return np.stack([pairs.real, pairs.imag], axis=1).ravel()


def asked(params: Any, token: Array, heads: int) -> list[list[Array]]:
    """Query, key and value of a token, each cut into heads."""
    kernels = (params[f"w_{name}"]["kernel"] for name in ("query", "key", "value"))
    return [np.split(token @ kernel, heads) for kernel in kernels]


def over_real(x: Array, valid: Array, step: Any, start: Any) -> Array:
    """`step(token, position, state) -> y, state` over the real tokens of every row, from the state
    `start`; at padding y is that of the state as it is, so only real tokens are compared: NaN
    elsewhere.
    """
    result = np.full(x.shape, np.nan)
    for b, row in enumerate(x):
        state, position = start, 0
        for t, token in enumerate(row):
            if valid[b, t]:
                result[b, t], state = step(token, position, state)
                position += 1
    return result


def retention(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = gamma_h S_{t-1} + k_t v_t^T; y = (silu(x W_g) * GroupNorm(o)) W_o."""
    heads = config["heads"]

    def step(token: Array, position: int, state: Any) -> Any:
        q, k, v = asked(params, token, heads)
        after, normed = [], []
        for h in range(heads):
            key = turned(k[h], position) / np.sqrt(len(k[h]))
            after.append((1 - 2.0 ** (-5 - h)) * state[h] + np.outer(key, v[h]))
            o = turned(q[h], position) @ after[h]
            normed.append((o - o.mean()) / np.sqrt(o.var() + 1e-6))
        gate = silu(token @ params["w_gate"]["kernel"])
        return (np.concatenate(normed) * gate) @ params["out"]["kernel"], after

    return over_real(x, valid, step, [0.0] * heads)


def gated_linear(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = Diag(alpha_t) S_{t-1} + k_t v_t^T, alpha = sigmoid(x W_1 W_2 + b)^(1/16)."""
    heads = config["heads"]

    def step(token: Array, position: int, state: Any) -> Any:
        q, k, v = asked(params, token, heads)
        low = token @ params["w_low"]["kernel"]
        kept = sigmoid(low @ params["w_forget"]["kernel"] + params["w_forget"]["bias"])
        alpha = np.split(kept ** (1 / 16), heads)
        after, normed = [], []
        for h in range(heads):
            after.append(alpha[h][:, None] * state[h] + np.outer(k[h], v[h]))
            o = (q[h] / np.sqrt(len(q[h]))) @ after[h]
            normed.append(rms(o, params["norm"]["norm"]["scale"], 1e-5))
        gate = silu(token @ params["w_gate"]["kernel"] + params["w_gate"]["bias"])
        return (np.concatenate(normed) * gate) @ params["out"]["kernel"], after

    return over_real(x, valid, step, [0.0] * heads)


def hgrn(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """f = l + (1 - l) sigmoid(x W_f); S_t = Diag(f_t) S_{t-1} + (1 - f_t) v_t^T."""
    heads, least = config["heads"], config["least"]

    def step(token: Array, position: int, state: Any) -> Any:
        q = np.split(silu(token @ params["w_query"]["kernel"]), heads)
        f = least + (1 - least) * sigmoid(token @ params["w_forget"]["kernel"])
        v = np.split(token @ params["w_value"]["kernel"], heads)
        after = [
            one[:, None] * before + np.outer(1 - one, value)
            for one, before, value in zip(np.split(f, heads), state, v, strict=True)
        ]
        o = np.concatenate([query @ one for query, one in zip(q, after, strict=True)])
        return rms(o, params["norm"]["scale"], 1e-6) @ params["out"]["kernel"], after

    return over_real(x, valid, step, [0.0] * heads)


def mamba(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = e^{dt A} S_{t-1} + dt B_t v_t^T; y_t = C_t^T S_t + D v_t, after a convolution."""
    n, p, k, wide = config["state"], config["head_width"], config["kernel"], 2 * x.shape[-1]
    heads = wide // p

    def step(token: Array, position: int, state: Any) -> Any:
        inputs, matrices = state
        z, c, dt = np.split(token @ params["w_in"]["kernel"], (wide, 2 * wide + 2 * n))
        inputs = [*inputs, c]
        taps, bias = params["convolution"]["kernel"], params["convolution"]["bias"]
        mixed = silu(bias + sum(taps[j] * inputs[-1 - j] for j in range(k)))
        v, b, c = np.split(mixed, (wide, wide + n))
        dt = np.log1p(np.exp(dt + params["step"]))
        after, o = [], []
        for h, value in enumerate(np.split(v, heads)):
            decay = np.exp(-dt[h] * np.exp(params["rate"][h]))
            after.append(decay * matrices[h] + dt[h] * np.outer(b, value))
            o.append(c @ after[h] + params["skip"][h] * value)
        y = rms(np.concatenate(o) * silu(z), params["norm"]["norm"]["scale"], 1e-5)
        return y @ params["out"]["kernel"], (inputs[1:], after)

    nothing = [np.zeros(wide + 2 * n)] * (k - 1)
    return over_real(x, valid, step, (nothing, [0.0] * heads))
