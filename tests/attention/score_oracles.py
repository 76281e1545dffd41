"""Float64 NumPy references of the scores: (params, fields, q [dq], k [dk], position j of the key)
to one number.

Each is in three steps, as the papers with rotary positions have it: what becomes of the query, what
of the key, and what of the two; a reference of a mechanism may turn queries and keys between the
steps. Written with plain loops from the formulas.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
NEVER = -1e30


def untouched(params: Any, fields: Any, x: Array) -> Array:
    """x."""
    return x


def nothing(params: Any, fields: Any, keys: Array, before: Array, j: int) -> tuple[Array, ...]:
    """A score that does not look back."""
    return ()


@dataclasses.dataclass(frozen=True)
class Oracle:
    """pair(query(q), key(k), j, *past(keys, before, j)), `before` [i,Tk] the weights of the queries
    before, in order.
    """

    pair: Callable[..., float]
    query: Callable[[Any, Any, Array], Array] = untouched
    key: Callable[[Any, Any, Array], Array] = untouched
    past: Callable[..., tuple[Array, ...]] = nothing

    def __call__(
        self,
        params: Any,
        fields: Any,
        q: Array,
        k: Array,
        j: int,
        keys: Any = None,
        before: Any = (),
    ) -> float:
        """The score of one query and one key; of those that look back, after rows of weights
        [i,Tk] over `keys` [Tk,dk].
        """
        x, y = self.query(params, fields, q), self.key(params, fields, k)
        past = () if keys is None else self.past(params, fields, keys, before, j)
        return float(self.pair(params, fields, x, y, j, *past))


def dot(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """q . k."""
    return float(sum(a * b for a, b in zip(q, k, strict=True)))


def scaled_dot(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """q . k / sqrt(D), or over the root of `over`."""
    return dot(params, fields, q, k, j) / float(np.sqrt(fields.get("over") or len(q)))


def additive(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """v . tanh(W_a q + U_a k)."""
    return coverage(params, fields, q, k, j)


def source_only(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """v . tanh(U_a k), whatever q."""
    return float(params["v"] @ np.tanh(params["w_key"]["kernel"].T @ k))


def location_aware(params: Any, fields: Any, q: Array, k: Array, j: int, more: Any = 0.0) -> float:
    """v . tanh(W_a q + U_a k + U_f f + b)."""
    return coverage(params, fields, q, k, j, params["bias"] + more)


def filtered(params: Any, fields: Any, keys: Array, before: Array, j: int) -> tuple[Array, ...]:
    """U_f f_j, f_j = sum over w of F_w a_{j + w - r}, a the last weights; zeros before the first."""
    reach, result = fields.get("reach", 10), np.zeros(params["filter"].shape[1])
    for at in range(j - reach, j + reach + 1):
        if len(before) and 0 <= at < len(keys):
            result = result + before[-1][at] * params["filter"][at - j + reach]
    return (params["of_filter"].T @ result,)


def coverage(params: Any, fields: Any, q: Array, k: Array, j: int, more: Any = 0.0) -> float:
    """v . tanh(W_a q + U_a k + v_c C)."""
    kernels = params["w_query"]["kernel"], params["w_key"]["kernel"]
    return float(params["v"] @ np.tanh(kernels[0].T @ q + kernels[1].T @ k + more))


def covered(params: Any, fields: Any, keys: Array, before: Array, j: int) -> tuple[Array, ...]:
    """v_c C_j, C_j = sum of the weights so far over P_j = N sigmoid(u_f . k_j); P_j = 1 for N = 0."""
    most, total = fields.get("fertility", 2.0), sum(row[j] for row in before)
    often = most / (1.0 + math.exp(-float(keys[j] @ params["fertile"][:, 0]))) if most else 1.0
    return (params["of_covered"] * (total / often),)


def times_w(params: Any, fields: Any, q: Array) -> Array:
    """q W."""
    return np.array([sum(q * column) for column in params["w"]["kernel"].T])


def times_w_and_b(params: Any, fields: Any, q: Array) -> Array:
    """q W + b."""
    return times_w(params, fields, q) + params["w"]["bias"]


def activated(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """act(q . k + b)."""
    x = dot(params, fields, q, k, j) + params["b"][0]
    acts = {
        "tanh": math.tanh,
        "relu": lambda x: max(x, 0.0),
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
        "identity": float,
    }
    return acts[fields.get("act", "tanh")](x)


def concat(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """v . tanh([q ; k] W_a)."""
    both, columns = np.array([*q, *k]), params["w_a"]["kernel"].T
    return sum(v * math.tanh(sum(both * w)) for v, w in zip(params["v"], columns, strict=True))


def concat_identity(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """v . tanh(q W_a + k)."""
    columns, v = params["w_a"]["kernel"].T, params["v"]["kernel"][:, 0]
    return sum(b * math.tanh(sum(q * w) + a) for a, b, w in zip(k, v, columns, strict=True))


def location(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """(q W_l)[j] below the limit."""
    return sum(q * params["w_l"]["kernel"][:, j]) if j < fields.get("limit", 50) else NEVER


def length_one(params: Any, fields: Any, x: Array) -> Array:
    """x / max(|x|, epsilon)."""
    return x / max(math.sqrt(sum(a * a for a in x)), fields.get("epsilon", 1e-6))


def sharpened(params: Any, fields: Any, q: Array) -> Array:
    """beta q / |q|; beta fixed, or log(1 + exp(.)) of a number, or of one that the query moves."""
    if fields.get("strength") == "fixed":
        return fields.get("beta", 5.0) * length_one(params, fields, q)
    raw = params["positive"]["raw"][0]
    if fields.get("strength") == "emitted":
        raw = raw + sum(q * params["emit"]["kernel"][:, 0])
    return math.log(1 + math.exp(raw)) * length_one(params, fields, q)


def euclidean(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """-|q - k|."""
    return -math.sqrt(sum((a - b) ** 2 for a, b in zip(q, k, strict=True)))


def gaussian(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """-|q - k|^2 / (2 tau)."""
    tau = fields.get("tau", 1.0)
    if fields.get("spread") != "fixed":
        tau = math.log(1 + math.exp(params["positive"]["raw"][0]))
    return -sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / (2 * tau)


def layernorm(side: str) -> Callable[[Any, Any, Array], Array]:
    """Of the query or the key: s (x - mean) / sqrt(var + epsilon), the variance over D and not D
    - 1.
    """

    def norm(params: Any, fields: Any, x: Array) -> Array:
        centred = x - sum(x) / len(x)
        root = math.sqrt(sum(centred**2) / len(x) + fields.get("epsilon", 1e-6))
        return params[f"{side}_norm"]["scale"] * centred / root

    return norm


def rmsnorm(side: str, added: float = 0.0) -> Callable[[Any, Any, Array], Array]:
    """Of the query or the key: (s + added) x / sqrt(mean(x^2) + epsilon)."""

    def norm(params: Any, fields: Any, x: Array) -> Array:
        root = math.sqrt(sum(a * a for a in x) / len(x) + fields.get("epsilon", 1e-6))
        return (params[f"{side}_norm"]["scale"] + added) * x / root

    return norm


def inside(params: Any, fields: Any) -> tuple[Oracle, Any, Any]:
    """The score inside a soft cap, its parameters and its fields."""
    node = fields.get("score", "scaled_dot")
    node = {"name": node} if isinstance(node, str) else dict(node)
    return SCORES[node.pop("name")], params.get("score", {}), node


def inside_query(params: Any, fields: Any, q: Array) -> Array:
    """What the score inside makes of a query."""
    score, own, node = inside(params, fields)
    return score.query(own, node, q)


def inside_key(params: Any, fields: Any, k: Array) -> Array:
    """What the score inside makes of a key."""
    score, own, node = inside(params, fields)
    return score.key(own, node, k)


def capped(params: Any, fields: Any, q: Array, k: Array, j: int) -> float:
    """c tanh(s / c); where the score inside never gives weight, this one does not either."""
    score, own, node = inside(params, fields)
    s, c = score.pair(own, node, q, k, j), fields.get("cap", 50.0)
    return s if s == NEVER else c * math.tanh(s / c)


SCORES: dict[str, Oracle] = {
    "dot": Oracle(dot),
    "scaled_dot": Oracle(scaled_dot),
    "general": Oracle(dot, query=times_w),
    "biased_general": Oracle(dot, query=times_w_and_b),
    "activated_general": Oracle(activated, query=times_w),
    "additive": Oracle(additive),
    "location_aware": Oracle(location_aware, past=filtered),
    "coverage": Oracle(coverage, past=covered),
    "concat": Oracle(concat),
    "concat_identity": Oracle(concat_identity),
    "location": Oracle(location),
    "source_only": Oracle(source_only),
    "cosine": Oracle(dot, query=sharpened, key=length_one),
    "euclidean": Oracle(euclidean),
    "gaussian": Oracle(gaussian),
    "qk_norm": Oracle(
        dot,
        query=lambda params, fields, q: params["g"][0] * length_one(params, fields, q),
        key=length_one,
    ),
    "qk_layernorm": Oracle(scaled_dot, query=layernorm("query"), key=layernorm("key")),
    "qk_rmsnorm": Oracle(scaled_dot, query=rmsnorm("query"), key=rmsnorm("key")),
    "qk_rmsnorm_plus_one": Oracle(scaled_dot, query=rmsnorm("query", 1.0), key=rmsnorm("key", 1.0)),
    "soft_capped": Oracle(capped, query=inside_query, key=inside_key),
}
