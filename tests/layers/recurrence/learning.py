"""Models that learn while they read, in NumPy, token by token: a model for every token, its
gradients by hand. From Sun et al. 2024 (arXiv 2407.04620), equations of section 2.
"""

from typing import Any

import numpy as np

Model = list[np.ndarray]
"""W, u of a linear model; W1, u1, W2, u2 of one with a hidden layer."""


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


def answer(model: Model, q: np.ndarray) -> np.ndarray:
    if len(model) == 2:
        return q @ model[0] + model[1]
    w1, u1, w2, u2 = model
    return gelu(q @ w1 + u1) @ w2 + u2


def taught(
    model: Model, sums: Model, i: int, shares: np.ndarray, token: Any, gamma: Any, beta: Any
) -> tuple[np.ndarray, Model, Model]:
    """W_i = W - c_i sum_{j<=i} eta_j dl_j/dW at W, and o = q + N(answer of W_i to q), for the token (q,
    k, v, eta) at place i of a mini-batch; o, and W and the sums for the next one.
    """
    q, k, v, eta = token
    slopes_of = linear_slopes if len(model) == 2 else mlp_slopes
    slopes = slopes_of(model, k, v - k, gamma, beta)
    total = [s + eta * slope for s, slope in zip(sums, slopes, strict=True)]
    now = [w - shares[i] * s for w, s in zip(model, total, strict=True)]
    o = q + gamma * standard(answer(now, q)) + beta
    if i == len(shares) - 1:
        return o, now, [np.zeros_like(s) for s in total]
    return o, model, total
