"""Looks that depend on the looks before give the same one after the other as all at once."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.view import CAUSAL, View
from attnlab.errors import UserError
from tests.attention.cases import CASES, inputs, looks_back, make, over, parameters, prepared
from tests.attention.test_memories import Scanned
from tests.rounding import assert_close

BACK = [case for case in CASES if looks_back(case[1])]


@over(BACK)
def test_looks_one_by_one_equal_a_look_at_once(name: str, config: dict[str, Any]) -> None:
    call, (query, source, valid) = prepared(name, config)[0], inputs()

    @jax.jit
    def at_once() -> Any:
        full = call(query, source, View(positions=2), valid)
        memory = call(source, valid, method="remember")
        at = View(positions=2 + query.shape[1] - 1)
        anew = call(query[:, -1:], memory, at, method="read")
        return full, memory, call(memory, method="initial_history"), anew

    full, memory, first, anew = at_once()
    history = first
    assert history is not None

    @jax.jit
    def step(history: Any, token: Any, at: Any) -> Any:
        reading = call(token, memory, View(positions=at), history=history, method="read")
        return reading.history, reading.context[:, 0]

    for i in range(query.shape[1]):
        history, context = step(history, query[:, i : i + 1], i + 2)
        assert_close(context, full.context[:, i], eps=16)
    kind = lambda x: (x.shape, str(x.dtype))
    kinds = [jax.tree.map(kind, state) for state in (first, history, full.history)]
    assert kinds[0] == kinds[1] == kinds[2]
    assert all(leaf.shape[0] == len(query) for leaf in jax.tree.leaves(history))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), history, full.history)
    assert np.abs(anew.context[:, 0] - full.context[:, -1]).max() > 1e-4  # earlier looks matter


@over(BACK, drawn=BACK[2:4])
def test_a_piece_of_queries_goes_on_from_the_piece_before(
    name: str, config: dict[str, Any]
) -> None:
    call, (query, source, valid) = prepared(name, config)[0], inputs()

    @jax.jit
    def both() -> Any:
        full = call(query, source, View(positions=2), valid).context
        memory = call(source, valid, method="remember")
        first = call(query[:, :2], memory, View(positions=2), method="read")
        second = call(query[:, 2:], memory, View(positions=4), history=first.history, method="read")
        return full, (first.context, second.context)

    full, pieces = both()
    actual = np.concatenate(pieces, axis=1)
    assert_close(actual, full, eps=8)


def test_inside_a_scan_with_gradients() -> None:
    module = make("single", {"score": {"name": "coverage", "hidden": 5}})
    params, (query, source, valid) = parameters(module), inputs()

    def at_once(params: Any) -> Any:
        reading = module.apply({"params": params}, query, source, View(CAUSAL.rule, 2), valid)
        return (reading.context**2).sum()  # type: ignore[union-attr]

    def scanned(params: Any) -> Any:
        actual = Scanned(module).apply({"params": {"mechanism": params}}, query, source, valid, 2)
        return (actual**2).sum()  # type: ignore[operator]

    both = [jax.jit(jax.value_and_grad(total))(params) for total in (at_once, scanned)]
    for leaf, same in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(leaf, same, rtol=1e-4, atol=1e-5)


def test_nothing_is_carried_where_nothing_looks_back() -> None:
    call, (query, source, _) = prepared("multihead", {"heads": 3})[0], inputs()
    memory = call(source, method="remember")
    assert call(memory, method="initial_history") is None
    assert call(query, memory, method="read").history is None


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
