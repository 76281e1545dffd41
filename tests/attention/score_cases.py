"""What the tests of scores run over: every registered score, in the settings worth a case, with
parameters and inputs for it.
"""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.scores import SCORES
from attnlab.attention.scores.protocol import Score
from attnlab.config.registry import made
from tests.attention import own_parts

B, H, TQ, TK, D = 2, 2, 3, 5, 6
J = np.arange(TK)
FIELDS: dict[str, list[dict[str, Any]]] = {
    "activated_general": [{}, {"act": "relu"}],
    "additive": [{"hidden": 7}],
    "concat": [{"hidden": 7}],
    "location_aware": [{"hidden": 7, "filters": 3, "reach": 2}],
    "coverage": [{"hidden": 7}, {"hidden": 5, "fertility": 0.0}],
    "location": [{"limit": 4}],
    "source_only": [{"hidden": 7}],
    "cosine": [{}, {"strength": "emitted"}, {"strength": "fixed", "beta": 2.0}],
    "gaussian": [{}, {"spread": "fixed", "tau": 3.0}],
    "qk_norm": [{"length": 9}],
    "qk_rmsnorm": [{}, {"over": 20.0, "epsilon": 1e-2}],
    "scaled_dot": [{}, {"over": 20.0}],
    "soft_capped": [
        {"cap": 2.0},
        {"cap": 1.5, "score": {"name": "additive", "hidden": 7}},
        {"cap": 3.0, "score": {"name": "location", "limit": 4}},
    ],
}
_EVERY = [(name, fields) for name in SCORES.names() for fields in FIELDS.get(name, [{}])]
CASES = [(name, json.dumps(fields)) for name, fields in own_parts.settings("score", _EVERY)]
NAMES = [f"{name}-{fields}" for name, fields in CASES]


def whole(score: Score, q: Any, k: Any, j: Any = J) -> jax.Array:
    """Scores [B,H,Tq,Tk] as a mechanism without positions comes to them."""
    return score.pairs(
        score.of_query(q, k.shape[-1]) * score.scale(q.shape[-1]), score.of_key(k), j
    )


def make(name: str, fields: str) -> Score:
    """The score of a case."""
    return made(SCORES, {"name": name, **json.loads(fields)})()


def drawn(score: Score, query_width: int = D, key_width: int = D) -> dict[str, Any]:
    """Variables of a score, `randomised`."""
    q, k = jnp.zeros((1, 1, 1, query_width)), jnp.zeros((1, 1, 1, key_width))
    return randomised(
        jax.eval_shape(lambda: score.init(jax.random.key(0), q, k, np.arange(1), method=whole))
    )


def randomised(shapes: Any, seed: int = 0) -> Any:
    """Arrays N(0, 1 / rows) in these shapes, those that start at zero too, so that none is
    silent.
    """
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (rng.normal(size=leaf.shape) / np.sqrt(leaf.shape[0])).astype(np.float32),
        shapes,
    )


def inputs(
    query_width: int = D, key_width: int = D, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Unit-variance q [B,H,Tq,dq] and k [B,H,Tk,dk]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(B, H, TQ, query_width)).astype(np.float32), rng.normal(
        size=(B, H, TK, key_width)
    ).astype(np.float32)
