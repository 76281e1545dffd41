"""Whole mechanisms that reduce to one another do so exactly.

Those of scores, alignments, position schemes, rules and kernels stand with their own tests.
"""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.mechanisms.latent import Latent
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL
from tests.attention.cases import WIDTH, inputs, make, parameters
from tests.rounding import assert_close

EYE = {"kernel": np.eye(WIDTH, dtype=np.float32)}


def read(
    name: str, config: dict[str, Any], params: Any, query: Any, source: Any, valid: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Context and weights under causal visibility."""

    @jax.jit
    def look(*given: Any) -> Any:
        variables, *seen = given
        reading = make(name, config).apply(variables, *seen, CAUSAL, valid, mutable=[MAPS])[0]
        return reading.context, reading.weights

    return look({"params": params}, query, source)


def of(name: str, config: dict[str, Any]) -> Any:
    """Parameters of a mechanism."""
    return parameters(make(name, config))


def assert_same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    """Contexts and weights are equal up to the order of summation."""
    for actual, wanted in zip(found, expected, strict=True):
        assert_close(actual, wanted, eps=8)


def test_one_head_without_projections_is_single_attention() -> None:
    query, source, valid = inputs()
    bare = {"w_query": EYE, "w_key": EYE, "w_value": EYE, "out": EYE}
    for score in ("scaled_dot", "euclidean"):
        heads = read("multihead", {"heads": 1, "score": score}, bare, query, source, valid)
        assert_same(heads, read("single", {"score": score}, {}, query, source, valid))


@pytest.mark.parametrize("rotary", [0, 4])
def test_both_forms_of_latent_attention_are_one(
    rotary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"heads": 3, "latent": 5, "rotary": rotary, "positions": "rope" if rotary else "none"}
    actual = []
    for absorbed in (True, False):
        monkeypatch.setattr(Latent, "absorbs", lambda *_, absorbed=absorbed: absorbed)
        actual.append(read("latent", config, of("latent", config), *inputs()))
    assert_same(*actual)
