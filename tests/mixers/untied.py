"""Float64 references of RWKV-7 and of mLSTM, from the papers' equations, token by token and head by
head; padding is passed over.
"""

from typing import Any

import numpy as np

from tests.layers.oracles import sigmoid
from tests.mixers.stateful import Array, Config, asked, over_real, rms


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
            kappa = k * params["erased"][h]
            kappa = kappa / np.sqrt((kappa**2).sum() + 1e-6)
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
