"""Float64 references of the delta rules, from the papers' equations, token by token and head by head;
padding is passed over.
"""

from typing import Any

import numpy as np

from tests.layers.oracles import sigmoid
from tests.mixers.stateful import Array, Config, over_real, rms, silu


def unit(x: Array) -> Array:
    return x / np.sqrt((x**2).sum() + 1e-6)


def delta_rule(params: Any, config: Config, x: Array, valid: Array, decay: Any, end: Any) -> Array:
    """Of every token: what was is decayed; then micro-step after micro-step S <- S - beta k (S^T k)^T +
    beta k v^T; q reads. `decay(token)`: alpha of each head; `end(o, token)`: all heads to y W_o^-1.
    """
    heads, k = config["heads"], config["kernel"]
    largest = config.get("largest", 2.0 if "count" in config else 1.0)
    count = config.get("count", 1)
    kernels = [params[f"w_{one}"]["kernel"] for one in ("query", "key", "value")]
    taps = params["convolution"]["kernel"]

    def step(token: Array, position: int, state: Any) -> Any:
        inputs, matrices = state
        inputs = [*inputs, np.concatenate([token @ kernel for kernel in kernels])]
        mixed = sum(taps[j] * inputs[-1 - j] for j in range(k))
        mixed = mixed if config.get("activation") == "none" else silu(mixed)
        wide = kernels[0].shape[1]
        q, keys, values = np.split(mixed, (wide, (1 + count) * wide))
        beta = largest * sigmoid(token @ params["w_rate"]["kernel"]).reshape(count, heads)
        alpha, after, o = decay(token), [], []
        for h in range(heads):
            s = alpha[h] * matrices[h] * np.ones((wide // heads, values.size // count // heads))
            for j in range(count):
                key = unit(np.split(np.split(keys, count)[j], heads)[h])
                value = np.split(np.split(values, count)[j], heads)[h]
                s = s - beta[j, h] * np.outer(key, key @ s) + beta[j, h] * np.outer(key, value)
            after.append(s)
            o.append(unit(np.split(q, heads)[h]) @ s / np.sqrt(wide // heads))
        return end(o, token) @ params["out"]["kernel"], (inputs[1:], after)

    nothing = [np.zeros(taps.shape[1])] * (k - 1)
    return over_real(x, valid, step, (nothing, [0.0] * heads))


def delta_net(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = (I - beta k k^T) S_{t-1} + beta k v^T; y = RMSNorm(o) W_o."""

    def end(o: Any, token: Array) -> Array:
        return np.concatenate([rms(one, params["norm"]["scale"], 1e-5) for one in o])

    return delta_rule(params, config, x, valid, lambda token: [1.0] * config["heads"], end)


def delta_product(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """Two such steps for each token."""
    return delta_net(params, {"count": 2, **config}, x, valid)


def gated_delta_net(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = alpha (I - beta k k^T) S_{t-1} + beta k v^T; y = (silu(x W_g) * RMSNorm(o)) W_o."""

    def decay(token: Array) -> Array:
        steps = np.logaddexp(0.0, token @ params["w_forget"]["kernel"] + params["step"])
        return np.exp(-np.exp(params["rate"]) * steps)

    def end(o: Any, token: Array) -> Array:
        scale, gate = params["norm"]["norm"]["scale"], token @ params["w_gate"]["kernel"]
        return np.concatenate([rms(one, scale, 1e-5) for one in o]) * silu(gate)

    return delta_rule(params, config, x, valid, decay, end)


def gated_delta_product(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S <- alpha S, then two steps of the delta rule, for each token."""
    return gated_delta_net(params, {"count": 2, **config}, x, valid)


def kda(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = (I - beta k k^T) Diag(e^g) S_{t-1} + beta k v^T, one g for each channel."""

    def decay(token: Array) -> list[Array]:
        low = token @ params["w_low"]["kernel"] @ params["w_forget"]["kernel"]
        steps = np.split(np.logaddexp(0.0, low + params["step"]), config["heads"])
        rates = np.exp(params["rate"])
        return [np.exp(-rate * step)[:, None] for rate, step in zip(rates, steps, strict=True)]

    def end(o: Any, token: Array) -> Array:
        low = token @ params["w_gate_low"]["kernel"]
        gate = sigmoid(low @ params["w_gate"]["kernel"] + params["w_gate"]["bias"])
        scale = params["norm"]["norm"]["scale"]
        return np.concatenate([rms(one, scale, 1e-5) for one in o]) * gate

    return delta_rule(params, config, x, valid, decay, end)
