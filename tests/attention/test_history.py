"""Looks that depend on the looks before: their gradients through a loop, what cannot carry them, and
numbers at the edge. That they give the same one after the other as all at once: test_memories.py.
"""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.view import CAUSAL, View
from attnlab.errors import UserError
from tests.attention.cases import inputs, make, parameters
from tests.attention.test_memories import Scanned


def test_inside_a_scan_with_gradients() -> None:
    module = make("single", {"score": {"name": "coverage", "hidden": 5}})
    params, (query, source, valid) = parameters(module), inputs()

    def at_once(params: Any) -> Any:
        reading = module.apply({"params": params}, query, source, View(CAUSAL.rule, 2), valid)
        return (reading.context**2).sum()  # type: ignore[union-attr]

    def scanned(params: Any) -> Any:
        within = {"params": {"mechanism": params}}
        contexts, _ = Scanned(module).apply(within, query, source, valid, 2)  # type: ignore[misc]
        return (contexts**2).sum()

    both = [jax.jit(jax.value_and_grad(total))(params) for total in (at_once, scanned)]
    for leaf, same in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(leaf, same, rtol=1e-4, atol=1e-5)


SLOT = Need(role="cross", stepwise=True, history=True)


@pytest.mark.quick
def test_what_cannot_carry_is_refused_by_name() -> None:
    talking, heads = (MECHANISMS.resolve(name) for name in ("talking_heads", "multihead"))
    for part in ({"score": "coverage"}, {"alignment": "temporal"}):
        SLOT.check(heads, "slot", part)
        with pytest.raises(UserError, match=r"slot\.(score|alignment): .*TalkingHeads"):
            SLOT.check(talking, "slot", part)
    for score in ("coverage", {"name": "soft_capped", "score": "location_aware"}):
        with pytest.raises(UserError, match="slot.score: .*nothing is carried on"):
            Need(role="cross", stepwise=True).check(heads, "slot", {"score": score})
        with pytest.raises(UserError, match="slot.kernel: kernel 'blockwise' never has looks"):
            SLOT.check(heads, "slot", {"score": score, "kernel": "blockwise"})
    query, source, _ = inputs()
    with pytest.raises(UserError, match="TalkingHeads: the score Coverage depends"):
        init = make("talking_heads", {"heads": 3, "score": "coverage"}).init
        jax.eval_shape(init, jax.random.key(0), query, source)
    with pytest.raises(UserError, match="kernel 'blockwise' never has looks"):
        init = make("multihead", {"heads": 3, "score": "coverage", "kernel": "blockwise"}).init
        jax.eval_shape(init, jax.random.key(0), query, source)


def test_a_capped_score_looks_back_as_the_one_inside() -> None:
    inside = {"name": "coverage", "hidden": 5}
    capped = {"score": {"name": "soft_capped", "cap": 1e4, "score": inside}}
    plain, (query, source, valid) = make("single", {"score": inside}), inputs()
    params = parameters(plain)
    within = {"score": {"score": params["score"]}}

    @jax.jit
    def contexts() -> list[Any]:
        both = (plain, params), (make("single", capped), within)
        looks = [one.apply({"params": of}, query, source, valid=valid) for one, of in both]
        return [look.context for look in looks]

    expected, actual = contexts()
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_padding_that_would_never_be_looked_at_divides_nothing_by_zero() -> None:
    """Its fertility is 0 in float32, and so are its weights."""
    module, (query, source, valid) = make("single", {"score": "coverage"}), inputs()
    params = parameters(module)
    params["score"]["fertile"] = np.ones_like(params["score"]["fertile"])

    @jax.jit
    @jax.value_and_grad
    def total(params: Any, dirty: Any) -> Any:
        return (module.apply({"params": params}, query, dirty, valid=valid).context ** 2).sum()  # type: ignore[union-attr]

    for garbage in (1e4, -1e4):
        actual = total(params, np.where(valid[..., None], source, np.float32(garbage)))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(actual))
