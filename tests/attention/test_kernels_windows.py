"""Windows that are gathered give what plain gives, with less work."""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.analysis.work import flops
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.attention.visibility import Causal, Stride
from tests.attention.cases import inputs, make, parameters
from tests.attention.test_kernels import assert_agree, sloped

KEYS = 23
M, P = ({"name": name, "reach": 2} for name in ("local_m", "local_p"))
VIEWS = {
    "everything": EVERYTHING,
    "causal": CAUSAL,
    "placed": View(positions=3),
    "placed by row": View(Causal() & Stride(2), positions=np.array([3, 0, 11])),
}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("single", {"score": {"name": "additive", "hidden": 5}, "alignment": P}, "everything"),
    ("single", {"score": "dot", "alignment": {**P, "name": "local_p_renormalised"}}, "everything"),
    ("single", {"score": {"name": "location", "limit": 9}, "alignment": M}, "placed"),
    ("multihead", {"heads": 3, "alignment": M, "positions": "alibi"}, "causal"),
    ("multihead", {"heads": 2, "key_heads": 1, "alignment": M}, "placed by row"),
]


@pytest.mark.parametrize(("name", "config", "view"), CASES)
def test_windows_equal_plain_in_values_and_gradients(
    name: str, config: dict[str, Any], view: str
) -> None:
    query, source, _ = inputs(keys=KEYS)
    valid = np.arange(KEYS)[None] < np.array([KEYS, 0, 6])[:, None]
    module, params = make(name, config), parameters(make(name, config))
    actual, expected = (
        jax.jit(sloped(module.clone(kernel=kernel), VIEWS[view], valid))(params, query, source)
        for kernel in ("auto", "plain")
    )
    assert_agree(actual, expected)


@pytest.mark.quick
def test_less_is_computed_where_the_window_is_small_and_nothing_else_where_it_is_not() -> None:
    query, source, _ = inputs(batch=1, queries=16, keys=200)

    def work(reach: int, kernel: str) -> float:
        alignment = {"name": "local_m", "reach": reach}
        module = make("multihead", {"heads": 3, "alignment": alignment, "kernel": kernel})
        call = lambda params, *given, **method: module.apply({"params": params}, *given, **method)
        memory = call(parameters(module), source, method="remember")
        look = lambda *given: call(*given, View(positions=0), method="read").context
        return flops(look, parameters(module), query, memory)

    assert work(2, "auto") < 0.3 * work(2, "plain")
    assert work(60, "auto") == work(60, "plain")
