"""Float64 references of the mixers whose states are models that learn, from the papers' equations,
token by token and head by head; padding is passed over.
"""

from typing import Any

import numpy as np

from tests.layers.oracles import sigmoid
from tests.layers.recurrence.learning import gelu, standard, taught
from tests.mixers.stateful import Array, Config, over_real, turned


def ttt(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """Every head teaches its own model; y = (gelu(x W_g) * LayerNorm(o)) W_o."""
    heads, b, taps = config["heads"], config["mini_batch"], config["kernel"]
    names = [n for n in ("kernel_0", "bias_0", "kernel_1", "bias_1") if n in params]
    largest = config.get("largest", 0.1 if "kernel_1" in params else 1.0)
    start = [
        [params[n][h] if "k" in n[0] else params[n][h, 0] for n in names] for h in range(heads)
    ]
    shares = np.maximum(0, 1 / np.arange(1, b + 1) + params["place"])

    def step(token: Array, position: int, state: Any) -> Any:
        inputs, models, sums = state
        inputs, i = [*inputs, token @ params["w_query"]["kernel"]], position % b
        q, k = (
            sum(params[f"convolution_{one}"]["kernel"][j] * inputs[-1 - j] for j in range(taps))
            + params[f"convolution_{one}"]["bias"]
            for one in ("query", "key")
        )
        v = np.split(token @ params["w_value"]["kernel"], heads)
        eta = token @ params["w_rate"]["kernel"] + params["w_rate"]["bias"]
        eta = largest * sigmoid(eta) / len(v[0])
        o: Any = []
        after: Any = []
        summed: Any = []
        for h in range(heads):
            gamma, beta = params["scale"][h, 0], params["offset"][h, 0]
            query, key = (turned(np.split(one, heads)[h], i) for one in (q, k))
            given = query, key, v[h], eta[h]
            result = taught(models[h], sums[h], i, shares, given, gamma, beta)
            for into, one in zip((o, after, summed), result, strict=True):
                into.append(one)
        gate = gelu(token @ params["w_gate"]["kernel"])
        normed = standard(np.concatenate(o)) * params["norm"]["scale"] + params["norm"]["bias"]
        return (gate * normed) @ params["out"]["kernel"], (inputs[1:], after, summed)

    nothing = [np.zeros(x.shape[-1])] * (taps - 1)
    sums = [[np.zeros_like(one) for one in m] for m in start]
    return over_real(x, valid, step, (nothing, start, sums))


def ttt_linear(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """The inner model x W + u."""
    assert "kernel_1" not in params
    return ttt(params, config, x, valid)


def ttt_mlp(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """The inner model gelu(x W_1 + u_1) W_2 + u_2."""
    assert params["kernel_0"].shape[2] == config.get("expansion", 4) * params["kernel_0"].shape[1]
    return ttt(params, config, x, valid)
