"""Mechanisms under rules other than the plain ones equal their oracles under the predicate of each
rule.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.attention.view import View
from tests.attention import visibility_oracles
from tests.attention.cases import inputs, make, parameters, wide
from tests.attention.oracles import ORACLES
from tests.rounding import assert_close

RULED: list[tuple[str, dict[str, Any]]] = [
    ("multihead", {"heads": 2}),
    ("multihead", {"heads": 2, "key_heads": 1, "alignment": "entmax", "positions": "alibi"}),
    ("latent", {"heads": 2, "latent": 5}),
    ("hops", {"hops": 2, "hidden": 5}),
]
OTHERS = "sliding", "dilated", "prefix-LM by row", "packed", "longformer", "strided", "nested"
RULES = ["bigbird", "factorised", *(pytest.param(rule, marks=pytest.mark.full) for rule in OTHERS)]


@pytest.mark.parametrize(("name", "config"), RULED)
@pytest.mark.parametrize("rule", RULES)
def test_values_equal_the_oracle_under_any_rule(
    rule: str, name: str, config: dict[str, Any]
) -> None:
    """Rules that tell heads apart too: the oracle, which does not, is asked once for each head."""
    asked, predicate = visibility_oracles.cases()[rule]
    length = visibility_oracles.T
    x, _, _ = inputs(batch=2, queries=length)
    valid = np.arange(length)[None] < np.array([length, length - 2])[:, None]
    mask = visibility_oracles.mask(predicate) & valid[:, None, None]
    module, params = make(name, config), parameters(make(name, config))
    look = functools.partial(module.apply, {"params": params}, mutable=[MAPS])
    reading, _ = jax.jit(lambda x: look(x, x, View(asked), valid))(x)
    for head in range(2):
        oracle = functools.partial(
            ORACLES[name], wide(params), config=config, causal=asked.is_causal
        )
        context, weights = oracle(query=wide(x), source=wide(x), mask=mask[:, head])
        assert_close(reading.weights[:, head], weights[:, head], eps=8)
    if (mask[:, 0] == mask[:, 1]).all():
        assert_close(reading.context, context, eps=16)
