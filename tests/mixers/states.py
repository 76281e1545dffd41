"""Float64 references of the mixers that keep a state, from the papers' equations, token by token and
head by head; padding is passed over.
"""

from typing import Any

import numpy as np

from tests.layers.oracles import sigmoid
from tests.layers.recurrence.learning import gelu, standard, taught

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
            normed.append(standard(turned(q[h], position) @ after[h]))
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


def mlstm(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """C_t = f C_{t-1} + i k v^T, n_t = f n_{t-1} + i k, o = C^T q / max(|n^T q|, 1): no stabiliser."""
    heads, cap = config["heads"], config.get("cap", 15.0)

    def step(token: Array, position: int, state: Any) -> Any:
        q, k, v = asked(params, token, heads)
        gates = (token @ params["w_gates"]["kernel"]).reshape(2, heads) + params["bias"]
        i, f = cap * np.tanh(gates / cap) if cap else gates
        after, normed = [], []
        for h, (c, n) in enumerate(state):
            c = sigmoid(f[h]) * c + np.exp(i[h]) * np.outer(k[h], v[h])
            n = sigmoid(f[h]) * n + np.exp(i[h]) * k[h]
            query = q[h] / np.sqrt(len(q[h]))
            o = c.T @ query / max(abs(n @ query), 1.0)
            normed.append(rms(o, params["norm"]["norm"]["scale"], 1e-6))
            after.append((c, n))
        gate = sigmoid(token @ params["w_out_gate"]["kernel"])
        return (np.concatenate(normed) * gate) @ params["out"]["kernel"], after

    return over_real(x, valid, step, [(0.0, 0.0)] * heads)


def rwkv7(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """S_t = S_{t-1} (Diag(w) - kappa (a * kappa)^T) + v k^T with states [D_v,D_k] as in the paper."""
    heads, kernels = config["heads"], {n: p["kernel"] for n, p in params.items() if "kernel" in p}

    nothing = np.zeros((heads, x.shape[-1] // heads, x.shape[-1] // heads))

    def step(token: Array, position: int, state: Any) -> Any:
        before, states = state
        r, w, k, v, a, g = (token + (before - token) * mu for mu in params["shift"])
        r, k, v = r @ kernels["w_read"], k @ kernels["w_key"], v @ kernels["w_value"]
        w = np.tanh(w @ kernels["low_decay"]) @ kernels["w_decay"]
        a = (a @ kernels["low_rate"]) @ kernels["w_rate"]
        g = sigmoid(g @ kernels["low_gate"]) @ kernels["w_gate"]
        after, y = [], []
        cut = [np.split(one, heads) for one in (r, k, v, w, a)]
        for h in range(heads):
            r, k, v, w, a = (one[h] for one in cut)
            w = np.exp(-np.exp(-0.5) * sigmoid(w + params["decay"][h]))
            a = sigmoid(a + params["rate"][h])
            kappa = unit(k * params["erased"][h])
            k = k * (1 + (a - 1) * params["written"][h])
            turn = np.diag(w) - np.outer(kappa, a * kappa)
            after.append(states[h] @ turn + np.outer(v, k))
            o = after[h] @ r
            o = (o - o.mean()) / np.sqrt(o.var() + 64e-5)
            here = slice(h * len(o), (h + 1) * len(o))
            o = o * params["scale"][here] + params["offset"][here]
            y.append(o + (r * k * params["bonus"][h]).sum() * v)
        return (np.concatenate(y) * g) @ kernels["out"], (token, after)

    return over_real(x, valid, step, (np.zeros(x.shape[-1]), nothing))


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
