"""Contexts are found by keys and made of values that are handed over apart, by every mechanism that
declares it.
"""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL
from attnlab.errors import UserError
from tests.attention import cases
from tests.attention.oracles import ORACLES
from tests.attention.oracles.heads import heads_scores, heads_values
from tests.attention.oracles.rows import Look
from tests.attention.test_conformance import dense_mask
from tests.rounding import assert_close

FIRST = [
    (name, settings[0])
    for name, settings in cases.SETTINGS.items()
    if MECHANISMS.resolve(name).capabilities.values
]
every = cases.over(FIRST, "pairs", drawn=FIRST[:4])


@functools.cache
def program(name: str) -> Any:
    """(source, keys, values) to a look at the source, and at keys and values: contexts and maps."""
    call, _ = cases.prepared(name, dict(FIRST)[name])
    query, _, valid = cases.inputs()

    @jax.jit
    def looks(source: Any, keys: Any, values: Any) -> Any:
        remembered = (
            call(source, valid, method="remember"),
            call(keys, values, valid, method="remember_pairs"),
        )
        result = [call(query, one, method="read", mutable=[MAPS]) for one in remembered]
        return [(reading.context, maps[MAPS]["weights"][0]) for reading, maps in result]

    return lambda *given: jax.tree.map(np.asarray, looks(*given))


def other(source: np.ndarray) -> np.ndarray:
    return np.random.default_rng(9).normal(size=source.shape).astype(np.float32)


@every
@pytest.mark.quick
def test_a_source_is_both_and_values_leave_the_weights_alone(
    name: str, config: dict[str, Any]
) -> None:
    _, source, _ = cases.inputs()
    (plain, maps), (same, _) = program(name)(source, source, source)
    np.testing.assert_array_equal(same, plain)
    apart, apart_maps = program(name)(source, source, other(source))[1]
    np.testing.assert_array_equal(apart_maps, maps)
    assert np.abs(apart - plain).max() > 1e-2
    moved, moved_maps = program(name)(source, other(source), source)[1]
    assert np.abs(moved_maps - maps).max() > 1e-2
    assert np.abs(moved - plain).max() > 1e-2


@cases.over(FIRST, drawn=FIRST[:2])
def test_pairs_one_by_one_equal_all_at_once(name: str, config: dict[str, Any]) -> None:
    call, _ = cases.prepared(name, config)
    x, _, _ = cases.inputs(queries=5)

    @jax.jit
    def looks(x: Any, values: Any) -> Any:
        whole = call(x, call(x, values, method="remember_pairs"), CAUSAL, method="read").context
        memory, actual = call(x[:, :2], values[:, :2], None, 7, method="remember_pairs"), []
        for t in range(2, 5):
            here = slice(t, t + 1)
            memory = call(memory, x[:, here], values[:, here], method="extend_pairs")
            actual.append(call(x[:, here], memory, CAUSAL, method="read").context)
        return whole[:, 2:], jnp.concatenate(actual, axis=1)

    whole, actual = looks(x, other(x))
    assert_close(actual, whole, eps=8)


@every
def test_values_are_taken_as_they_are_where_that_is_declared(
    name: str, config: dict[str, Any]
) -> None:
    """Where all slots hold one vector, that vector is what is found; a projection would make
    another of it.
    """
    _, source, _ = cases.inputs()
    values = np.broadcast_to(other(source)[:, :1], source.shape)
    actual, _ = program(name)(source, source, values)[1]
    off = np.abs(actual - values[:, :5]).max()
    plain = MECHANISMS.resolve(name).capabilities.unprojected
    assert off <= cases.TOLERANCE["float32"] if plain else off > 1e-2


@pytest.mark.quick
def test_a_slot_that_needs_values_as_they_are_refuses_what_projects_them() -> None:
    for name, _ in FIRST:
        mechanism = MECHANISMS.resolve(name)
        need = Need(**cases.own_place(mechanism), values="unprojected")
        words = f"{mechanism.__name__} does not support unprojected values; choose 'single'"
        refused = pytest.raises(UserError, match=f"slot: {words}")
        with contextlib.nullcontext() if mechanism.capabilities.unprojected else refused:
            need.check(mechanism, "slot")
    plain = [name for name, _ in FIRST if MECHANISMS.resolve(name).capabilities.unprojected]
    assert plain == ["single"]


def test_sums_are_those_of_the_oracles() -> None:
    query, source, valid = cases.inputs()
    mask, values = dense_mask(CAUSAL, valid, 5), other(source)
    for name, config in FIRST[:2]:
        call, params = cases.prepared(name, config)
        memory = call(source, values, valid, method="remember_pairs")
        actual = call(query, memory, CAUSAL, method="read").context
        look = Look(params, config, query, source, mask, True)
        if name == "single":
            _, weights = ORACLES["single"](*look)
            expected = np.einsum("bhqk,bkd->bqd", weights, values)
        else:
            weights = look.weights(look.heads, heads_scores(look))
            sums = heads_values(look._replace(source=values), weights)
            expected = sums @ params["out"]["kernel"]
        assert_close(actual, expected, eps=8)


def test_in_one_head_only_the_values_have_the_width_of_the_context() -> None:
    """Keys of 4, queries of 3, values of 12: the score lays itself out for the keys."""
    for score in ("general", "additive"):
        module = cases.make("single", {"score": score})
        x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
        values = np.random.default_rng(1).normal(size=(2, 5, cases.WIDTH)).astype(np.float32)
        query = x[:, :2, :3]

        def look(module: Any, query: Any = query, x: Any = x, values: Any = values) -> Any:
            return module.read(query, module.remember_pairs(x, values)).context

        init = functools.partial(module.init_with_output, jax.random.key(0), method=look)
        context, _ = jax.eval_shape(init)
        assert context.shape == (2, 2, cases.WIDTH)
    words = "single: the source is 4 wide, the context is asked to be 12"
    with pytest.raises(UserError, match=words):
        module.init_with_output(jax.random.key(0), x, method="remember")
