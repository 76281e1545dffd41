"""Float64 references of the mixers that are no attention, token by token: what is real is read, in
its order, and padding is passed over.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.mixers.performer import directions
from tests.layers.oracles import affine, sigmoid, softmax
from tests.mixers import states
from tests.mixers.states import Array, Config
from tests.systems.oracles import parts

Oracle = Callable[[Any, Config, Array, Array], Array]


def recurrent(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """y_t = h_t W_o, or h_t; the cell is known by its parameters."""
    result, nothing = np.zeros(x.shape), np.zeros(config.get("state", x.shape[-1]))
    for b, row in enumerate(x):
        state = nothing, nothing
        for t, token in enumerate(row):
            if valid[b, t]:
                state = parts.layer_step(params["cell"], state, token)
            result[b, t] = state[1] @ params["out"]["kernel"] if "out" in params else state[1]
    return result


def convolution(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """The gated linear unit of the last k real tokens; zeros at padding."""
    linear, k = params["convolution"]["linear"], config["kernel"]
    kernel = linear["v"] * (linear["g"] / np.sqrt((linear["v"] ** 2).sum(axis=0)))
    result = np.zeros(x.shape)
    for b, row in enumerate(x):
        read = [np.zeros(x.shape[-1])] * (k - 1)
        for t, token in enumerate(row):
            if valid[b, t]:
                read.append(token)
                a, gate = np.split(
                    np.concatenate(read[len(read) - k :]) @ kernel + linear["bias"], 2
                )
                result[b, t] = a * sigmoid(gate)
    return result


def average(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """A gate between a token and the mean of the real ones up to it."""
    assert all("bias" in layer for layer in params.values())
    result = np.zeros(x.shape)
    for b, t in np.ndindex(x.shape[:2]):
        read = [x[b, s] for s in range(t + 1) if valid[b, s]]
        mean = np.mean(read, axis=0) if read else np.zeros(x.shape[-1])
        if "w_hidden" in params:
            mean = affine(params["w_mean"], np.maximum(affine(params["w_hidden"], mean), 0))
        gates = sigmoid(affine(params["w_gates"], np.concatenate([x[b, t], mean])))
        result[b, t] = gates[: len(mean)] * x[b, t] + gates[len(mean) :] * mean
    return result


def reformer(params: Any, config: Config, x: Array, valid: Array, causal: bool = True) -> Array:
    """Shared queries and keys; the union over the rounds of what is near in the order of buckets."""
    heads, buckets, rounds = config["heads"], config["buckets"], config["rounds"]
    m, size = config["chunk"], x.shape[-1] // heads
    turns = np.asarray(
        jax.random.normal(
            jax.random.key(config.get("seed", 0)), (heads, size, rounds, buckets // 2), jnp.float32
        ),
        np.float64,
    )
    joined = np.zeros(x.shape)
    for b, h in np.ndindex(len(x), heads):
        own = slice(h * size, (h + 1) * size)
        q = (x[b] @ params["w_query"]["kernel"])[:, own]
        v = (x[b] @ params["w_value"]["kernel"])[:, own]
        keys = q / np.sqrt((q**2).sum(axis=-1, keepdims=True))
        real = [t for t in range(x.shape[1]) if valid[b, t]]
        seen: dict[int, set[int]] = {t: set() for t in real}
        for r in range(rounds):
            turned = q @ turns[h, :, r]
            of = np.concatenate([turned, -turned], axis=-1)
            bucket = of.argmax(axis=-1) if buckets > 1 else np.zeros(len(q), int)
            order = sorted(real, key=lambda t, bucket=bucket: (bucket[t], t))
            for p, i in enumerate(order):
                for s, j in enumerate(order):
                    near = 0 < p - s <= m if causal else p // m - s // m in (0, 1)
                    if near and bucket[i] == bucket[j]:
                        seen[i].add(j)
        for i in real:
            others = sorted(seen[i] - {i}) or [i]
            scores = np.exp(keys[others] @ q[i] / np.sqrt(size))
            joined[b, i, own] = scores / scores.sum() @ v[others]
    return joined @ params["out"]["kernel"]


def nystrom(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """softmax(Q K~) pinv(softmax(Q~ K~)) softmax(Q~ K) V, and the sums of neighbours of V."""
    heads, m, taps = config["heads"], config["landmarks"], config["taps"]
    size, joined = x.shape[-1] // heads, np.zeros(x.shape)
    for b, h in np.ndindex(len(x), heads):
        own, real = slice(h * size, (h + 1) * size), np.flatnonzero(valid[b])
        q, k, v = (
            (x[b] @ params[f"w_{name}"]["kernel"])[:, own] for name in ("query", "key", "value")
        )
        for t in real:
            for tap in range(taps):
                s = t + tap - taps // 2
                if s in real:
                    joined[b, t, own] += params["near"][h, tap] * v[s]
        segment = np.arange(len(real)) * m // max(len(real), 1)
        groups = [real[segment == one] for one in range(m) if (segment == one).any()]
        if not groups:
            continue
        q_mean, k_mean = (np.stack([y[one].mean(axis=0) for one in groups]) for y in (q, k))
        to, among, come = (
            softmax(one @ other.T / np.sqrt(size))
            for one, other in ((q[real], k_mean), (q_mean, k_mean), (q_mean, k[real]))
        )
        z = among.T / (among.sum(axis=0).max() * among.sum(axis=1).max())
        one = np.eye(len(groups))
        for _ in range(config["steps"]):
            az = among @ z
            z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
        joined[b, real, own] += to @ z @ come @ v[real]
    return (joined * valid[..., None]) @ params["out"]["kernel"]


def fourier(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """The transform over channels and the real tokens, as a double sum."""
    result = np.zeros(x.shape)
    channel = np.arange(x.shape[-1])
    of_channels = np.exp(-2j * np.pi * np.outer(channel, channel) / len(channel))
    for b in range(len(x)):
        real = np.flatnonzero(valid[b])
        at = np.arange(len(real))
        of_tokens = np.exp(-2j * np.pi * np.outer(at, at) / max(len(real), 1))
        result[b, real] = (of_tokens @ x[b, real] @ of_channels).real
    return result


def longformer(params: Any, config: Config, x: Array, valid: Array) -> Array:
    """Each token over its window and the global ones; those over all, through other matrices."""
    heads, half, tokens = config["heads"], config["window"] // 2, config["tokens"]
    size, joined = x.shape[-1] // heads, np.zeros(x.shape)
    for b, h, i in np.ndindex(len(x), heads, x.shape[1]):
        own, ending = slice(h * size, (h + 1) * size), "_global" if i in tokens else ""
        seen = [
            j
            for j in range(x.shape[1])
            if valid[b, j] and (abs(i - j) <= half or i in tokens or j in tokens)
        ]
        if not (valid[b, i] and seen):
            continue
        q = (x[b, i] @ params[f"w_query{ending}"]["kernel"])[own]
        k, v = (
            (x[b, seen] @ params[f"w_{name}{ending}"]["kernel"])[:, own]
            for name in ("key", "value")
        )
        joined[b, i, own] = softmax(k @ q / np.sqrt(size)) @ v
    return joined @ params["out"]["kernel"]


def featured(
    params: Any, config: Config, query: Array, source: Array, mask: Array
) -> tuple[Array, Array]:
    """The context of attention by random features, and its weights [B,H,Tq,Tk]; `mask` [B,Tq,Tk] is
    True where a query may see a key.
    """
    heads = config["heads"]
    size = params["out"]["kernel"].shape[0] // heads
    key = jax.random.key(config.get("seed", 0))
    w = directions(key, config["features"], size, config.get("orthogonal", True))
    drawn = np.asarray(w, np.float64)

    def phi(x: Array) -> Array:
        x = x / size**0.25
        if config.get("map") == "relu":
            return np.maximum(drawn @ x, 0) + 1e-3
        return np.exp(drawn @ x - x @ x / 2) / np.sqrt(len(drawn))

    q, k, v = (
        x @ params[f"w_{one}"]["kernel"]
        for one, x in (("query", query), ("key", source), ("value", source))
    )
    weights, joined = np.zeros((len(q), heads, q.shape[1], k.shape[1])), np.zeros(q.shape)
    for b, h, i in np.ndindex(weights.shape[:3]):
        own, seen = slice(h * size, (h + 1) * size), np.flatnonzero(mask[b, i])
        weights[b, h, i, seen] = [phi(q[b, i, own]) @ phi(k[b, j, own]) for j in seen]
        weights[b, h, i] /= weights[b, h, i].sum() if len(seen) else 1
        joined[b, i, own] = weights[b, h, i] @ v[b, :, own]
    return joined @ params["out"]["kernel"], weights


def performer(params: Any, config: Config, x: Array, valid: Array, causal: bool = False) -> Array:
    """`featured` of a text that is mixed with itself; 0 at padding."""
    mask = np.repeat(valid[:, None], x.shape[1], axis=1)
    mask = np.tril(mask) if causal else mask
    return featured(params, config, x, x, mask)[0] * valid[..., None]


_WITH_STATES = """
retention gated_linear hgrn mamba delta_net gated_delta_net kda delta_product gated_delta_product
rwkv7 mlstm ttt_linear ttt_mlp
"""
MIXER_ORACLES: dict[str, Oracle] = {
    "recurrent": recurrent,
    "convolution": convolution,
    "average": average,
    "reformer": reformer,
    "performer": functools.partial(performer, causal=True),
    **{name: getattr(states, name) for name in _WITH_STATES.split()},
}
"""Of those that read from left to right."""
WHOLE_ORACLES: dict[str, Oracle] = {
    "fourier": fourier,
    "longformer": longformer,
    "nystrom": nystrom,
    "reformer": functools.partial(reformer, causal=False),
    "performer": performer,
}
"""Of those in which every token may see every other."""
