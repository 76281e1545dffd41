"""Settings of every gate for small maps of an odd size, with parameters and inputs."""

from typing import Any

import flax.traverse_util
import jax
import numpy as np

from attnlab.config.registry import made
from attnlab.layers.gates import GATES
from attnlab.layers.gates.protocol import Gate

SHAPE = (2, 5, 3, 6)
FIELDS: dict[str, list[dict[str, Any]]] = {
    "se": [{"reduction": 2}, {"reduction": 4, "bias": False, "pools": ("max",)}],
    "eca": [{"kernel": 5}, {}],
    "channel": [{"reduction": 3}],
    "spatial": [{"kernel": 3}, {"kernel": 5, "normalisation": "batch_norm"}],
    "cbam": [
        {"first": {"name": "channel", "reduction": 2}, "second": {"name": "spatial", "kernel": 3}},
        {"first": {"name": "spatial", "kernel": 3}, "second": {"name": "se", "reduction": 2}},
    ],
    "coordinate": [{"reduction": 3, "least": 0}, {"least": 5, "normalisation": "none"}],
    "residual_attention": [
        {"depth": 2, "bottleneck": 2},
        {"depth": 1, "activation": "channel", "normalisation": "layer_norm", "identity": 0.0},
        {"depth": 1, "units": 2, "activation": "spatial", "normalisation": "none"},
    ],
    "non_local": [{}, {"score": "scaled_dot", "pool": 2}],
    "non_local_gaussian": [{"pool": 2}],
    "non_local_dot": [{"reduction": 3}],
    "non_local_concat": [{"pool": 2}],
    "none": [{}],
}
CASES = [(name, number) for name, several in FIELDS.items() for number in range(len(several))]
NAMES = [f"{name}-{number}" for name, number in CASES]


def make(name: str, fields: dict[str, Any]) -> Gate:
    """A gate with these fields."""
    gate: Gate = made(GATES, {"name": name, **fields})()
    return gate


def drawn(gate: Gate, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> dict[str, Any]:
    """Parameters in float64, those that start at zero too; a variance is above 0."""
    rng = np.random.default_rng(seed)
    x = jax.ShapeDtypeStruct(shape, np.float32)
    shapes = jax.eval_shape(gate.init, jax.random.key(0), x).get("params", {})
    flat = flax.traverse_util.flatten_dict(shapes)
    value = {
        path: rng.normal(size=leaf.shape) / np.sqrt(max(1.0, np.prod(leaf.shape[:-1])))
        for path, leaf in flat.items()
    }
    value = {path: abs(one) + 0.5 if path[-1] == "variance" else one for path, one in value.items()}
    params: dict[str, Any] = flax.traverse_util.unflatten_dict(value)
    return params


def maps(shape: tuple[int, ...] = SHAPE, seed: int = 1) -> np.ndarray:
    """Feature maps, N(0.3, 1)."""
    return np.random.default_rng(seed).normal(0.3, 1.0, size=shape)
