"""Every registered mechanism keeps the promises of all; a new one is tested here the moment it is
registered. A default run compares every value of a setting with the oracle, and spreads the other
promises over the cases.

Oracles are float64 NumPy loops (`oracles.py`), settings and tolerances stand in `cases.py`; what
memories promise is tested in `test_memories.py`. For a mechanism of your own: `python -m pytest
tests/attention --mechanism=my_file:MyAttention`.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.errors import UserError
from tests.attention import cases
from tests.attention.looks import Looks, drawn, looks
from tests.attention.oracles import ORACLES, part
from tests.attention.slopes import assert_slopes, inner
from tests.rounding import assert_close

every = cases.over_all("promises")
VIEWS = {"all": EVERYTHING, "causal": CAUSAL}
FIRST = cases.first_settings()
DROPPING = [
    case
    for case in cases.CASES
    if case in FIRST or "positions" in case[1] or cases.looks_back(case[1])
]
ALWAYS = [  # compared with the oracle in both views
    ("single", {"score": {"name": "general"}}),
    ("multihead", {"heads": 6, "key_heads": 2}),
    ("multihead", {"heads": 6, "key_heads": 3, "score": {"name": "coverage", "hidden": 4}}),
    ("multi_step", {"steps": 2, "looks": {"name": "multihead", "heads": 2}}),
]
EAGER = ("single", "multihead", "linear", "native_sparse")


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


@cases.over_all("oracle", quick=True, always=ALWAYS)
@pytest.mark.parametrize("view", VIEWS)
def test_values_and_gradients_equal_the_oracle(
    name: str, config: dict[str, Any], view: str
) -> None:
    """A mechanism that refuses a causal view is compared under the other one."""
    query, source, valid = cases.inputs()
    case, visibility = looks(name, config), VIEWS[view]
    if view == "causal" and cases.causally(case.module) is EVERYTHING:
        with pytest.raises(UserError, match=type(case.module).__name__):
            case.look(case.params, query, source, visibility, valid)
        visibility = EVERYTHING
    mask = dense_mask(visibility, valid, query.shape[1])
    oracle = functools.partial(
        cases.reference(name), config=config, mask=mask, causal=visibility.is_causal
    )
    given = cases.wide((case.params, query, source))
    context, weights = oracle(given[0], query=given[1], source=given[2])
    actual = case.found(visibility)
    assert_close(actual.context, context, eps=8)
    assert_close(actual.weights, weights, eps=8)

    def total(params: Any, query: Any, source: Any) -> float:
        """One number of a look, with the weights in it where they are handed out."""
        context, weights = oracle(params, query=query, source=source)
        of_weights = inner(weights, drawn(weights.shape)) if case.weighs else 0.0
        return inner(context, drawn(context.shape)) + of_weights

    if aligned(config) not in cases.ESTIMATORS:
        assert_slopes(actual.slopes, given, total)


@every
def test_float64_equals_the_oracle_and_both_modes_of_differentiation_hold(
    name: str, config: dict[str, Any]
) -> None:
    """Forward against central differences, and backward against forward, along random directions."""
    query, source, valid = cases.inputs(batch=2, queries=3, keys=4)
    case = looks(name, config)
    exact = case.exact()
    assert exact.context.dtype == np.float64
    if name in ORACLES:
        params, query, source = cases.wide((case.params, query, source))
        view = cases.causally(case.module)
        mask = dense_mask(view, valid, 3)
        look = {"query": query, "source": source, "mask": mask, "causal": view.is_causal}
        expected, _ = ORACLES[name](params, config=config, **look)
        np.testing.assert_allclose(exact.context, expected, rtol=0, atol=cases.TOLERANCE["float64"])
    if aligned(config) not in cases.ESTIMATORS:
        within = {"rtol": cases.TOLERANCE["gradient"], "atol": cases.TOLERANCE["gradient"]}
        np.testing.assert_allclose(exact.forward, exact.numeric, **within)
        np.testing.assert_allclose(
            inner(exact.backward, exact.tangents), inner(exact.cotangent, exact.numeric), **within
        )


@every
def test_causal_sees_no_future(name: str, config: dict[str, Any]) -> None:
    if "causal" not in cases.make(name, config).capabilities.directions:
        pytest.skip("declares no causal direction")
    case, everyone = looks(name, config), np.ones((3, 7), bool)
    query, source, _ = cases.inputs()
    before, of_source = case.found(CAUSAL, valid=everyone).context, []
    for t in range(1, 5):  # query t stands beside key t + 2
        other, who = cases.inputs(seed=t + 2), (np.arange(5) < t).astype(np.float32)
        changed = {
            "query": np.concatenate([query[:, :t], other[0][:, t:]], axis=1),
            "source": np.concatenate([source[:, : t + 2], other[1][:, t + 2 :]], axis=1),
        }
        actual = case.found(CAUSAL, valid=everyone, who=who, **changed)
        assert_close(actual.context[:, :t], before[:, :t], eps=8)
        assert abs(actual.context[:, t:] - before[:, t:]).max() > 1e-3  # the present is seen
        present = case.found(CAUSAL, valid=everyone, source=changed["source"]).context
        of_source.append(abs(present[:, t:] - before[:, t:]).max())
        assert not (actual.slopes[1][:, t:].any() or actual.slopes[2][:, t + 2 :].any())
        assert (actual.slopes[2][:, :t] != 0.0).any()
    assert max(of_source) > 1e-3  # and not the query alone


@cases.over_all("promises", always=ALWAYS[-1:])
def test_padding_is_inert(name: str, config: dict[str, Any]) -> None:
    """Whatever is in it, and however much of it there is."""
    case = looks(name, config)
    _, source, valid = cases.inputs()
    clean = case.found()
    for garbage in (1.0, 1e4):
        dirty = np.where(valid[..., None], source, np.float32(garbage))
        actual = case.found(source=dirty)
        assert_close(actual.context, clean.context, eps=8)
        assert (actual.slopes[2][~valid] == 0.0).all()
    assert_close(case.forward().longer, clean.context, eps=8)


@every
def test_batch_rows_do_not_mix(name: str, config: dict[str, Any]) -> None:
    """The other rows are other ones; and a row is alone, without its padding or any word of it."""
    case = looks(name, config)
    query, source, _ = cases.inputs()
    together, others = case.found().context, cases.inputs(seed=4)
    for row in range(3):
        mine = (np.arange(3) == row)[:, None, None]
        given = {"query": np.where(mine, query, others[0])}
        actual = case.found(source=np.where(mine, source, others[1]), **given)
        assert_close(actual.context[row], together[row], eps=8)
    short = case.found(cases.causally(case.module), valid=np.tile(np.arange(7) < 4, (3, 1)))
    assert_close(case.forward().rows, short.context, eps=8)


@every
def test_order_matters_exactly_where_positions_are_looked_at(
    name: str, config: dict[str, Any]
) -> None:
    """Of the source, which is a set without positions; and of a sequence that attends to itself,
    whose contexts move with it, unless later looks depend on earlier ones.
    """
    case = looks(name, config)
    _, source, valid = cases.inputs()
    order = np.random.default_rng(3).permutation(7)
    reordered = case.found(source=source[:, order], valid=valid[:, order])
    of_source = np.abs(reordered.context - case.found().context)
    first, turned = source[:, :5], np.array([2, 0, 4, 1, 3, 6, 5])  # the first five stay first
    moved = case.found(query=first[:, turned[:5]], source=source[:, turned], valid=valid[:, turned])
    itself = case.found(query=first, source=source, valid=valid)
    of_itself = np.abs(moved.context - itself.context[:, turned[:5]])
    places = cases.looks_at_positions(name, config)
    for off, matters in ((of_source, places), (of_itself, places or cases.looks_back(config))):
        assert off.max() > 1e-3 if matters else off.max() <= cases.TOLERANCE["reordered"]


@cases.over_all("promises", always=[case for case in FIRST if case[0] == "key_value"])
def test_dead_rows_give_zeros_and_zero_gradients(name: str, config: dict[str, Any]) -> None:
    case = looks(name, config)
    params = cases.without_biases(case.params)
    dead = np.zeros((3, 7), bool)
    dead[1] = True
    actual = case.found(params=params, valid=dead)
    context = actual.context
    assert (context[[0, 2]] == 0.0).all() and np.abs(context[1]).max() > 1e-3
    for grad in actual.slopes[1:]:
        assert np.isfinite(grad).all() and (grad[[0, 2]] == 0.0).all()


@every
def test_bfloat16_stays_close(name: str, config: dict[str, Any]) -> None:
    case = looks(name, config)
    context = case.forward().low
    assert context.dtype == jnp.bfloat16
    given = case.params, *cases.inputs()[:2]
    rounded = lambda one: one.astype(jnp.bfloat16).astype(np.float32)
    params, query, source = jax.tree.map(rounded, given)
    exact = case.found(params=params, query=query, source=source).context  # of rounded numbers
    off = np.abs(np.asarray(context, np.float32) - exact).max(axis=-1)
    off = off > cases.TOLERANCE["bfloat16"] * max(1.0, np.abs(exact).max())
    assert off.mean() <= (0.2 if {aligned(config), name} & set(cases.JUMPS) else 0.0)


@cases.over([case for case in FIRST if case[0] in EAGER or ":" in case[0]], "promises")
def test_jit_agrees_with_plain(name: str, config: dict[str, Any]) -> None:
    """Operation by operation, each a program, where numbers are looked at if they are known; and of
    a mechanism of one's own.
    """
    case = looks(name, config)
    query, source, valid = cases.inputs()
    as_written = case.look(case.params, query, source, valid=valid).context
    assert_close(case.found().context, as_written, eps=8)


@every
def test_remat_agrees_with_plain(name: str, config: dict[str, Any]) -> None:
    """In float64: in float32 the two compiled programs round differently, by more than the
    tolerance where slopes are larger than 1.
    """
    exact = looks(name, config).exact()
    for actual, expected in zip(*map(jax.tree.leaves, (exact.remat, exact.backward)), strict=True):
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, expected, rtol=0, atol=cases.TOLERANCE["float64"])


@every
def test_maps_sum_to_one_and_leave_the_output_alone(name: str, config: dict[str, Any]) -> None:
    case = looks(name, config)
    actual, valid = case.forward(), cases.inputs()[2]
    plain, (reading, collected), (handed, left) = actual.plain, actual.recorded, actual.asked
    assert plain.weights is None  # off unless asked for
    np.testing.assert_array_equal(reading.context, plain.context)
    weights = cases.recorded(collected)
    np.testing.assert_array_equal(weights, reading.weights)
    np.testing.assert_array_equal(handed.context, plain.context)
    assert jax.tree.leaves(left) == []
    if case.weighs:  # as a result they are the same ones
        assert handed.weights.dtype == np.float32
        np.testing.assert_array_equal(handed.weights, weights)
    rows = case.module.rows()
    if rows == "one":
        assert_close(weights.sum(-1), 1.0, eps=8)
    elif rows == "at most one":
        assert (weights >= 0).all() and (weights.sum(-1) <= 1.0 + cases.TOLERANCE["float32"]).all()
    assert (weights[np.broadcast_to(~valid[:, None, None], weights.shape)] == 0.0).all()


@cases.over(DROPPING, "promises")
def test_dropout_as_declared(name: str, config: dict[str, Any]) -> None:
    """Weights are dropped where they are used, whatever score and alignment they are of."""
    if not cases.make(name, config).capabilities.dropout:
        assert "dropout" not in cases.make(name, config).__dataclass_fields__
        return
    plain, case = looks(name, config), Looks(name, config | {"dropout": 0.5})
    query, source, _ = cases.inputs(batch=1, queries=2, keys=4)
    given = (case.params, query, source)

    @jax.jit
    def program() -> Any:
        draw = lambda key: case.look(*given, rngs={"dropout": key}).context
        drops = jax.vmap(draw)(jax.random.split(jax.random.key(0), 10_000))
        return plain.look(*given).context, case.look(*given).context, drops

    without, off, drops = map(np.asarray, program())
    np.testing.assert_array_equal(off, without)
    assert drops.std(0).max() > 1e-3
    if name not in cases.NOT_LINEAR:
        errors = 5 * drops.std(0).max() / 100  # five standard errors
        np.testing.assert_allclose(drops.mean(0), off, atol=errors)


@cases.over(FIRST, quick=True)
def test_undeclared_requests_are_refused_by_name(name: str, config: dict[str, Any]) -> None:
    mechanism = MECHANISMS.resolve(name)
    can = mechanism.capabilities
    for role, direction in itertools.product(("self", "cross"), ("causal", "bidirectional")):
        need = Need(role=role, direction=direction, cache=can.cache)  # type: ignore[arg-type]
        if role in can.roles and direction in can.directions:
            need.check(mechanism, "slot")
            continue
        with pytest.raises(UserError, match=mechanism.__name__):
            need.check(mechanism, "slot")
    with pytest.raises(UserError, match="slot.*does not support.*'graph'"):
        Need(role="graph").check(mechanism, "slot")  # type: ignore[arg-type]
