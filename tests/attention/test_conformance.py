"""Promises every registered mechanism keeps; a new one is tested here the moment it is registered.

Oracles are float64 NumPy loops (`oracles.py`), settings and tolerances stand in `cases.py`; what
memories promise is tested in `test_memories.py`. For a mechanism of your own: `python -m pytest
tests/attention --mechanism=my_file:MyAttention`.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need, hands_out_weights
from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.errors import UserError
from tests.attention.cases import (
    ESTIMATORS,
    JUMPS,
    NOT_LINEAR,
    TOLERANCE,
    WIDTH,
    causally,
    inputs,
    looks_at_positions,
    looks_back,
    make,
    over_all,
    parameters,
    reference,
    wide,
)
from tests.attention.oracles import ORACLES, part

every, essential = over_all(), over_all(quick=True)
PLACED = View(positions=2)  # queries stay where they are when the source grows or shrinks


def prepared(name: str, config: dict[str, Any]) -> tuple[Any, Any]:
    """`attend(params, query, source, view, valid, **apply) -> context` and parameters.

    A look is one compiled program (operation by operation each would be a program of its own),
    which the tests of a case share.
    """
    return _prepared(name, json.dumps(config))


@functools.cache
def _prepared(name: str, config: str) -> tuple[Any, Any]:
    module = make(name, json.loads(config))
    programs: dict[int, Any] = {}

    def attend(
        params: Any,
        query: Any,
        source: Any,
        view: View = EVERYTHING,
        valid: Any = None,
        **how: Any,
    ) -> jax.Array:
        def look(params: Any, query: Any, source: Any, valid: Any, how: Any) -> jax.Array:
            return module.apply({"params": params}, query, source, view, valid, **how).context

        program = programs.setdefault(id(view), jax.jit(look))  # `look` keeps it alive
        return program(params, query, source, valid, how)

    return attend, parameters(module)


def dense_mask(view: View, valid: np.ndarray, queries: int) -> np.ndarray:
    """The oracle's own reading of a causal view and padding, [B,Tq,Tk]."""
    keys = valid.shape[1]
    mask = np.repeat(valid[:, None], queries, axis=1)
    if view.is_causal:
        for i in range(queries):
            mask[:, i, keys - queries + i + 1 :] = False
    return mask


def aligned(config: dict[str, Any]) -> str:
    """The name of the alignment."""
    return part(config, "alignment", "softmax")[0]


def test_every_mechanism_has_an_oracle() -> None:
    assert set(MECHANISMS.names()) <= set(ORACLES)


@essential
@pytest.mark.parametrize("view", [EVERYTHING, CAUSAL], ids=["all", "causal"])
def test_values_and_gradients_equal_the_oracle(
    name: str, config: dict[str, Any], view: View
) -> None:
    query, source, valid = inputs()
    module, params = make(name, config), parameters(make(name, config))
    if view.is_causal and causally(module) is EVERYTHING:
        with pytest.raises(UserError, match=type(module).__name__):
            module.apply({"params": params}, query, source, view, valid)
        return
    mask = dense_mask(view, valid, query.shape[1])
    oracle = functools.partial(reference(name), config=config, mask=mask, causal=view.is_causal)
    given = wide((params, query, source))
    context, weights = oracle(given[0], query=given[1], source=given[2])
    direction, of_weights = (
        np.random.default_rng(5).normal(size=one.shape).astype(np.float32)
        for one in (context, weights)
    )
    how = {"weights": True} if hands_out_weights(type(module)) else {}

    def measured(found: Any) -> Any:
        """One number of a look, with the weights in it where they are handed out."""
        context, weights = found
        return (context * direction).sum() + ((weights * of_weights).sum() if how else 0.0)

    def slope_of(params: Any, query: Any, source: Any) -> jax.Array:
        reading: Any = module.apply({"params": params}, query, source, view, valid, **how)
        return measured((reading.context, reading.weights))

    @jax.jit  # one program for the values and for the gradients
    def found_by(*given: Any) -> tuple[Any, Any]:
        look = module.apply({"params": given[0]}, *given[1:], view, valid, mutable=[MAPS])
        return look, jax.grad(slope_of, argnums=(0, 1, 2))(*given)

    (reading, collected), grads = found_by(params, query, source)
    np.testing.assert_allclose(reading.context, context, atol=TOLERANCE["float32"])
    np.testing.assert_allclose(collected[MAPS]["weights"][0], weights, atol=TOLERANCE["float32"])
    if aligned(config) in ESTIMATORS:
        return
    for which, gradient in enumerate(grads):
        slope = jax.tree.map(
            lambda a: np.random.default_rng(7).normal(size=np.shape(a)), given[which]
        )
        ends = []
        for sign in (1, -1):  # central difference of the oracle along one random direction
            moved = list(given)
            moved[which] = jax.tree.map(
                lambda a, s, sign=sign: a + sign * 1e-6 * s, given[which], slope
            )
            ends.append(measured(oracle(moved[0], query=moved[1], source=moved[2])))
        expected = (ends[0] - ends[1]) / 2e-6
        found = sum(
            float((np.asarray(g, np.float64) * s).sum())
            for g, s in zip(*map(jax.tree.leaves, (gradient, slope)), strict=True)
        )
        size = sum(
            float(np.abs(np.asarray(g) * s).sum())
            for g, s in zip(*map(jax.tree.leaves, (gradient, slope)), strict=True)
        )
        assert abs(found - expected) <= TOLERANCE["gradient"] * max(1.0, size)


@every
def test_float64_equals_the_oracle_and_both_modes_of_differentiation_hold(
    name: str, config: dict[str, Any], float64: None
) -> None:
    query, source, valid = inputs(batch=2, queries=3, keys=4)
    attend, params = prepared(name, config)
    view = causally(make(name, config))
    given = wide((params, query, source))
    context = attend(*given, view, valid)
    assert context.dtype == np.float64
    if name in ORACLES:
        look = {"mask": dense_mask(view, valid, 3), "causal": view.is_causal}
        expected, _ = ORACLES[name](
            given[0], config=config, query=given[1], source=given[2], **look
        )
        np.testing.assert_allclose(context, expected, rtol=0, atol=TOLERANCE["float64"])
    if aligned(config) not in ESTIMATORS:
        bound = TOLERANCE["gradient"]
        check_grads(
            lambda *a: attend(*a, view, valid),
            given,
            order=1,
            modes=("fwd", "rev"),
            eps=1e-5,
            atol=bound,
            rtol=bound,
        )


@essential
def test_causal_sees_no_future(name: str, config: dict[str, Any]) -> None:
    if "causal" not in make(name, config).capabilities.directions:
        pytest.skip("declares no causal direction")
    attend, params = prepared(name, config)
    x, _, _ = inputs(queries=6)
    x = jnp.asarray(x)
    run = lambda x: attend(params, x, x, CAUSAL)
    slope = jax.jit(
        lambda x, t: jax.grad(lambda x: (run(x) * (jnp.arange(6) < t)[None, :, None]).sum())(x)
    )
    before = run(x)
    for t in range(1, 6):
        changed = x.at[:, t:].set(jax.random.normal(jax.random.key(t), x[:, t:].shape))
        np.testing.assert_allclose(run(changed)[:, :t], before[:, :t], atol=TOLERANCE["float32"])
        assert abs(run(changed)[:, t:] - before[:, t:]).max() > 1e-3  # the present is seen
        assert (slope(x, t)[:, t:] == 0.0).all()


@essential
def test_padding_is_inert(name: str, config: dict[str, Any]) -> None:
    attend, params = prepared(name, config)
    query, source, valid = inputs()
    clean = attend(params, query, source, PLACED, valid)
    for garbage in (1.0, 1e4):
        dirty = np.where(valid[..., None], source, garbage)
        np.testing.assert_allclose(
            attend(params, query, dirty, PLACED, valid), clean, atol=TOLERANCE["float32"]
        )
    longer = np.concatenate([source, np.full((3, 4, WIDTH), 1e4, np.float32)], axis=1)
    padded = attend(params, query, longer, PLACED, np.pad(valid, ((0, 0), (0, 4))))
    np.testing.assert_allclose(padded, clean, atol=TOLERANCE["float32"])
    slope = jax.jit(
        jax.grad(lambda source: (attend(params, query, source, PLACED, valid) ** 2).sum())
    )(source)
    assert (np.asarray(slope)[~valid] == 0.0).all()


@every
def test_batch_rows_do_not_mix(name: str, config: dict[str, Any]) -> None:
    attend, params = prepared(name, config)
    query, source, valid = inputs()
    together = attend(params, query, source, PLACED, valid)
    for row in range(3):
        n = int(valid[row].sum())
        alone = attend(params, query[row : row + 1], source[row : row + 1, :n], PLACED)[0]
        np.testing.assert_allclose(alone, together[row], atol=TOLERANCE["float32"])


@every
def test_order_matters_exactly_where_positions_are_looked_at(
    name: str, config: dict[str, Any]
) -> None:
    """Of the source, which is a set without positions; and of a sequence that attends to itself,
    whose contexts move with it, unless later looks depend on earlier ones.
    """
    attend, params = prepared(name, config)
    query, source, valid = inputs()
    order = np.random.default_rng(3).permutation(7)
    of_source = np.abs(
        attend(params, query, source[:, order], PLACED, valid[:, order])
        - attend(params, query, source, PLACED, valid)
    )
    moved = attend(params, source[:, order], source[:, order], EVERYTHING, valid[:, order])
    of_itself = np.abs(moved - attend(params, source, source, EVERYTHING, valid)[:, order])
    places = looks_at_positions(name, config)
    for off, matters in ((of_source, places), (of_itself, places or looks_back(config))):
        assert off.max() > 1e-3 if matters else off.max() <= TOLERANCE["reordered"]


@every
def test_dead_rows_give_zeros_and_zero_gradients(name: str, config: dict[str, Any]) -> None:
    module, params = make(name, config), parameters(make(name, config))
    params = {
        part: (
            {key: value for key, value in leaf.items() if key != "bias"}
            | ({"bias": 0 * leaf["bias"]} if "bias" in leaf else {})
            if isinstance(leaf, dict)
            else leaf
        )
        for part, leaf in params.items()
    }
    query, source, _ = inputs()
    dead = np.zeros((3, 7), bool)
    dead[1] = True

    def total(query: Any, source: Any) -> tuple[jax.Array, jax.Array]:
        context = module.apply({"params": params}, query, source, EVERYTHING, dead).context
        return (context**2).sum() + context.sum(), context

    grads, context = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(query, source)
    context = np.asarray(context)
    assert (context[[0, 2]] == 0.0).all() and np.abs(context[1]).max() > 1e-3
    for grad in grads:
        assert np.isfinite(grad).all() and (np.asarray(grad)[[0, 2]] == 0.0).all()


@every
def test_bfloat16_stays_close(name: str, config: dict[str, Any]) -> None:
    attend, params = prepared(name, config)
    query, source, valid = inputs()
    low = jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), (params, query, source))
    context = attend(*low, EVERYTHING, valid)
    assert context.dtype == jnp.bfloat16
    exact = np.asarray(
        attend(*jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), low), EVERYTHING, valid)
    )  # of the rounded numbers
    off = np.abs(np.asarray(context, np.float32) - exact).max(axis=-1) > TOLERANCE[
        "bfloat16"
    ] * max(1.0, np.abs(exact).max())
    assert off.mean() <= (0.2 if aligned(config) in JUMPS else 0.0)


@every
def test_jit_and_vmap_agree_with_plain(name: str, config: dict[str, Any]) -> None:
    attend, params = prepared(name, config)
    query, source, valid = inputs()
    plain = make(name, config).apply({"params": params}, query, source, valid=valid).context
    np.testing.assert_allclose(
        attend(params, query, source, valid=valid), plain, atol=TOLERANCE["float32"]
    )
    rows = jax.vmap(lambda q, s, v: attend(params, q[None], s[None], valid=v[None])[0])(
        query, source, valid
    )
    np.testing.assert_allclose(rows, plain, atol=TOLERANCE["float32"])


@every
def test_remat_agrees_with_plain(name: str, config: dict[str, Any], float64: None) -> None:
    """In float64: in float32 the two compiled programs round differently, by more than the
    tolerance where slopes are larger than 1.
    """
    attend, params = prepared(name, config)
    query, source, valid = inputs()
    params, query, source = jax.tree.map(
        lambda x: np.asarray(x, np.float64), (params, query, source)
    )
    slope = lambda f: jax.jit(
        jax.grad(lambda *a: (f(*a, valid=valid) ** 2).sum(), argnums=(0, 1, 2))
    )(params, query, source)
    for found, expected in zip(
        *map(jax.tree.leaves, (slope(jax.checkpoint(attend)), slope(attend))), strict=True
    ):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE["float64"])


@every
def test_maps_sum_to_one_and_leave_the_output_alone(name: str, config: dict[str, Any]) -> None:
    module, params = make(name, config), parameters(make(name, config))
    query, source, valid = inputs()
    plain = module.apply({"params": params}, query, source, EVERYTHING, valid)
    reading, collected = module.apply(
        {"params": params}, query, source, EVERYTHING, valid, mutable=[MAPS]
    )
    assert plain.weights is None  # off unless asked for
    np.testing.assert_array_equal(reading.context, plain.context)
    weights = np.asarray(collected[MAPS]["weights"][0])
    np.testing.assert_array_equal(weights, reading.weights)
    if hands_out_weights(
        type(module)
    ):  # as a result they are the same ones, and nothing else is another
        asked, left = module.apply(
            {"params": params}, query, source, EVERYTHING, valid, True, mutable=[LOSSES]
        )
        assert asked.weights.dtype == np.float32 and jax.tree.leaves(left) == []
        np.testing.assert_array_equal(asked.weights, weights)
        np.testing.assert_array_equal(asked.context, plain.context)
    rows = make(name, config).rows()
    if rows == "one":
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=TOLERANCE["float32"])
    elif rows == "at most one":
        assert (weights >= 0).all() and (weights.sum(-1) <= 1.0 + TOLERANCE["float32"]).all()
    assert (weights[np.broadcast_to(~valid[:, None, None], weights.shape)] == 0.0).all()


@every
def test_dropout_as_declared(name: str, config: dict[str, Any]) -> None:
    if not make(name, config).capabilities.dropout:
        assert "dropout" not in make(name, config).__dataclass_fields__
        return
    attend, params = prepared(name, config | {"dropout": 0.5})
    query, source, _ = inputs(batch=1, queries=2, keys=4)
    off = attend(params, query, source)
    np.testing.assert_array_equal(off, prepared(name, config)[0](params, query, source))
    draw = jax.jit(jax.vmap(lambda key: attend(params, query, source, rngs={"dropout": key})))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 10_000)))
    assert drawn.std(0).max() > 1e-3
    if name not in NOT_LINEAR:
        np.testing.assert_allclose(
            drawn.mean(0), off, atol=5 * drawn.std(0).max() / 100
        )  # five standard errors
    np.testing.assert_array_equal(
        drawn[0], np.asarray(draw(jax.random.split(jax.random.key(0), 10_000)))[0]
    )


@essential
def test_undeclared_requests_are_refused_by_name(name: str, config: dict[str, Any]) -> None:
    mechanism = MECHANISMS.resolve(name)
    for role in ("self", "cross"):
        for direction in ("causal", "bidirectional"):
            need = Need(role=role, direction=direction, cache=mechanism.capabilities.cache)  # type: ignore[arg-type]
            if (
                role in mechanism.capabilities.roles
                and direction in mechanism.capabilities.directions
            ):
                need.check(mechanism, "slot")
            else:
                with pytest.raises(UserError, match=mechanism.__name__):
                    need.check(mechanism, "slot")
    with pytest.raises(UserError, match="slot.*does not support.*'graph'"):
        Need(role="graph").check(mechanism, "slot")  # type: ignore[arg-type]
