"""Float64 references of the states that are models and learn, from the papers' equations: a model
for every token, its gradients by hand; padding is passed over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.mixers.stateful import over_real, sigmoid, turned


def standard(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6)


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def loss_slope(z: np.ndarray, target: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> Any:
    """dl/dz of l = |gamma h + beta - target|^2 / 2, h the standardised z."""
    h = standard(z)
    g = (gamma * h + beta - target) * gamma
    return (g - g.mean() - h * (g * h).mean()) / np.sqrt(z.var() + 1e-6)


def linear_slopes(model: Any, k: np.ndarray, target: np.ndarray, gamma: Any, beta: Any) -> Any:
    """dl/dW and dl/du of z = k W + u."""
    w, u = model
    g = loss_slope(k @ w + u, target, gamma, beta)
    return [np.outer(k, g), g]


def mlp_slopes(model: Any, k: np.ndarray, target: np.ndarray, gamma: Any, beta: Any) -> Any:
    """Those of z = gelu(k W1 + u1) W2 + u2."""
    w1, u1, w2, u2 = model
    hidden = k @ w1 + u1
    g2 = loss_slope(gelu(hidden) @ w2 + u2, target, gamma, beta)
    g1 = (w2 @ g2) * gelu_slope(hidden)
    return [np.outer(k, g1), g1, np.outer(gelu(hidden), g2), g2]


def answer(model: Any, q: np.ndarray) -> np.ndarray:
    if len(model) == 2:
        return q @ model[0] + model[1]
    w1, u1, w2, u2 = model
    return gelu(q @ w1 + u1) @ w2 + u2


def ttt(params: Any, config: dict[str, Any], x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """W_t = W - c_i sum_{j<=t} eta_j dl_j/dW at W; o = q + LN(answer of W_t to q)."""
    heads, b, taps = config["heads"], config["mini_batch"], config["kernel"]
    depth = 4 if "kernel_1" in params else 2
    slopes_of = linear_slopes if depth == 2 else mlp_slopes
    largest = config.get("largest", 1.0 if depth == 2 else 0.1)
    names = ["kernel_0", "bias_0", "kernel_1", "bias_1"][:depth]
    start = [[np.squeeze(params[n][h]) for n in names] for h in range(heads)]
    shares = np.maximum(0, 1 / np.arange(1, b + 1) + params["place"])

    def step(token: np.ndarray, position: int, state: Any) -> Any:
        if state is None:
            nothing = [np.zeros(x.shape[-1])] * (taps - 1)
            state = nothing, start, [[np.zeros_like(one) for one in m] for m in start]
        inputs, models, sums = state
        inputs, i = [*inputs, token @ params["w_query"]["kernel"]], position % b
        q, k = (
            sum(params[f"of_{one}"]["kernel"][j] * inputs[-1 - j] for j in range(taps))
            + params[f"of_{one}"]["bias"]
            for one in ("query", "key")
        )
        v = np.split(token @ params["w_value"]["kernel"], heads)
        eta = token @ params["w_rate"]["kernel"] + params["w_rate"]["bias"]
        eta = largest * sigmoid(eta) / len(v[0])
        after, summed, o = [], [], []
        for h in range(heads):
            gamma, beta = params["scale"][h, 0], params["offset"][h, 0]
            query, key = (turned(np.split(one, heads)[h], i) for one in (q, k))
            slopes = slopes_of(models[h], key, v[h] - key, gamma, beta)
            total = [s + eta[h] * slope for s, slope in zip(sums[h], slopes, strict=True)]
            now = [w - shares[i] * s for w, s in zip(models[h], total, strict=True)]
            o.append(query + gamma * standard(answer(now, query)) + beta)
            ended = i == b - 1
            after.append(now if ended else models[h])
            summed.append([0 * s for s in total] if ended else total)
        gate = gelu(token @ params["w_gate"]["kernel"])
        normed = standard(np.concatenate(o)) * params["norm"]["scale"] + params["norm"]["bias"]
        return (gate * normed) @ params["out"]["kernel"], (inputs[1:], after, summed)

    return over_real(x, valid, step)


def ttt_linear(params: Any, config: dict[str, Any], x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The inner model x W + u."""
    assert "kernel_1" not in params
    return ttt(params, config, x, valid)


def ttt_mlp(params: Any, config: dict[str, Any], x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The inner model gelu(x W_1 + u_1) W_2 + u_2."""
    assert params["kernel_0"].shape[2] == config.get("expansion", 4) * params["kernel_0"].shape[1]
    return ttt(params, config, x, valid)
